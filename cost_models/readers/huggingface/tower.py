"""A vision tower in front of a text model: patches, bidirectional layers, the connector to its width."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from cost_models.operators import IdleWeights, PositionTable
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, activation, feed_forward_sublayer
from cost_models.readers.blocks.layers import layer_kind, runs
from cost_models.readers.blocks.stream import Stream, chain, column, replicated, row
from cost_models.readers.huggingface.config import Config
from cost_models.readers.huggingface.encoder import check_heads
from cost_models.readers.huggingface.vision import MAX_SIDE
from cost_models.specs.model import Layer, LayerKind, Role, Stack

VISION: Final = "vision"
"""Stack of the tower: every sequence holds one image of so many positions."""
CONNECTOR: Final = "connector"
"""Stack of what stands between: the positions that the text model receives."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Sizes that every tower has."""

    hidden: int
    heads: int
    layers: int
    mlp: MlpShape
    dropout: bool


@dataclass(frozen=True, slots=True)
class Tower:
    """A tower: its frame, its patches, and the operators that hand its output on."""

    frame: Frame
    patch_features: int
    """Numbers in one patch: channels x side x side (x frames)."""
    patch_bias: bool
    vectors: int
    """Learned rows beside the patch matrix: positions, class token."""
    positions: int
    """Positions of one image in the tower."""
    tokens: int
    """Positions of one image in the text model."""
    connector: Sequence[Operator]
    norms: tuple[str, ...] = ()
    """Norms over all positions before or after the layers."""
    idle: int = 0
    """Elements that the class holds and the text model never reads."""
    rotary: bool = False
    merger: Sequence[Operator] = ()
    mergers: int = 0
    """Further connectors, from inner layers of the tower to the text model's first layers."""
    blocks: Mapping[str, Sequence[Operator]] = field(default_factory=dict)
    """Kinds of layers, where they are not LayerNorm, attention and a feed-forward of two matrices with biases."""
    order: Sequence[str] = ()
    """Those kinds by layer."""
    norm: Literal["rms", "layer"] = "layer"
    """Kind of those norms."""
    embeds: bool = False
    """Whether the connector counts as part of the embedding (Gemma 4)."""

    def stacks(self) -> tuple[Stack, ...]:
        """Both stacks with their fixed positions."""
        return (
            Stack(name=VISION, positions=self.positions),
            Stack(name=CONNECTOR, positions=self.tokens),
        )

    def layers(self) -> tuple[Layer, ...]:
        """Patches, tower, connectors; the last run with the embedding on the first stage."""
        found = [
            Layer(kind="vision_embedding", role=Role.EMBEDDING, stack=VISION),
            *runs(self.order or ("vision",) * self.frame.layers, stack=VISION),
        ]
        if self.norms or self.idle:
            found.append(Layer(kind="vision_norms", role=Role.CONNECTOR, stack=VISION))
        if self.mergers:
            found.append(Layer(kind="merger", role=Role.CONNECTOR, stack=CONNECTOR, count=self.mergers))
        role = Role.EMBEDDING if self.embeds else Role.CONNECTOR
        return (*found, Layer(kind="connector", role=role, stack=CONNECTOR))

    def kinds(self, text_width: int) -> dict[str, LayerKind]:
        """Kinds of those layers; connectors hand on rows of the text model's width."""
        hidden = self.frame.hidden
        built = {"vision_embedding": self._embedding(), **(self.blocks or {"vision": self._block()})}
        if self.norms or self.idle:
            built["vision_norms"] = self._norms()
        found = {key: layer_kind(key, operators, hidden) for key, operators in built.items()}
        if self.mergers:
            found["merger"] = layer_kind("merger", self.merger, text_width)
        found["connector"] = layer_kind("connector", self.connector, text_width)
        return found

    def _embedding(self) -> tuple[Operator, ...]:
        """A convolution whose stride is its size, as the linear over patches that it equals."""
        hidden = self.frame.hidden
        elements = self.vectors * hidden
        return (
            replicated("patches", "x", self.patch_features, hidden, self.patch_bias),
            PositionTable(name="positions", inputs=("patches",), elements=elements, width=hidden),
        )

    def _block(self) -> tuple[Operator, ...]:
        frame = self.frame
        stream = Stream(frame.hidden, norm="layer")
        attention = AttentionShape(
            heads=frame.heads,
            head_dim=frame.hidden // frame.heads,
            qkv_bias=True,
            out_bias=True,
            rope=self.rotary,
            causal=False,
            dropout=frame.dropout,
        )
        return chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, frame.mlp))

    def _norms(self) -> tuple[Operator, ...]:
        stream = Stream(self.frame.hidden, norm=self.norm)
        found: list[Operator] = [stream.normalise(name, "x") for name in self.norms]
        if self.idle:
            found.append(IdleWeights(name="vision_idle", elements=self.idle))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Widths:
    """Widths of a projector of two matrices: in, between, out."""

    read: int
    inner: int
    out: int


def read_frame(config: Config, names: Mapping[str, str] | None = None) -> Frame:
    """Sizes under their usual keys, or under those of `names`."""
    known = names or {}
    heads_key = known.get("num_attention_heads", "num_attention_heads")
    hidden, heads = config.integer("hidden_size"), config.count(heads_key)
    check_heads(config, "hidden_size", hidden, heads, heads_key)
    function = config.text("hidden_act")
    return Frame(
        hidden=hidden,
        heads=heads,
        layers=config.count(known.get("num_hidden_layers", "num_hidden_layers")),
        mlp=MlpShape(width=config.integer("intermediate_size"), gated=False, function=function, bias=True),
        dropout=config.number("attention_dropout") > 0,
    )


def patch_features(config: Config, patch: int, channels: str = "num_channels") -> int:
    """Numbers in a square patch of one frame."""
    return config.integer(channels, high=MAX_SIDE) * patch**2


def projector(widths: Widths, function: str, bias: bool, source: str = "x") -> tuple[Operator, ...]:
    """Two matrices with an activation between them."""
    shape = MlpShape(width=widths.inner, gated=False, function=function, bias=bias)
    return (
        column("up", source, widths.read, widths.inner, bias),
        activation("act", "up", shape),
        row("down", "act", widths.inner, widths.out, bias),
    )
