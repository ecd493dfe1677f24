"""DETR (Carion et al. 2020): a ResNet without trained norms, an encoder over its positions, a decoder of queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cost_models.errors import InvalidModel
from cost_models.operators import Activation, BatchNorm, ClassLoss, Pool, PositionTable
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.cross_attention import cross_attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.layers import layer_kind, runs
from cost_models.readers.blocks.stream import Stream, chain, replicated
from cost_models.readers.huggingface import resnet
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import check_heads
from cost_models.readers.huggingface.vision import class_labels
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role, Stack

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        num_channels=3,
        num_queries=100,
        encoder_layers=6,
        encoder_ffn_dim=2048,
        encoder_attention_heads=8,
        decoder_layers=6,
        decoder_ffn_dim=2048,
        decoder_attention_heads=8,
        d_model=256,
        backbone="resnet50",
        position_embedding_type="sine",
    ),
    **options(activation_function="relu", dropout=0.1, attention_dropout=0.0, image_size=800),
    "num_labels": Default(2),
}
"""DetrConfig of transformers 5.24; 800 pixels is the shorter side that the published models were trained on."""

BACKBONES: Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "resnet18": ("basic", (64, 128, 256, 512), (2, 2, 2, 2)),
    "resnet34": ("basic", (64, 128, 256, 512), (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (256, 512, 1024, 2048), (3, 4, 6, 3)),
    "resnet101": ("bottleneck", (256, 512, 1024, 2048), (3, 4, 23, 3)),
}
"""Names of the backbones that a config may give: kind of layer, widths and depths of ResNet (He et al. 2015)."""

POSITION_ROWS: Final = 50
"""Rows of each of the two tables of learned positions, half of d_model wide."""
BOX: Final = 4
"""Numbers of a box."""


@dataclass(frozen=True, slots=True)
class Side:
    """Sizes of the layers of one stack."""

    stream: Stream
    heads: int
    mlp: MlpShape
    dropout: bool

    def attention(self) -> AttentionShape:
        """Attention over all positions, biases everywhere."""
        return AttentionShape(
            heads=self.heads,
            head_dim=self.stream.hidden // self.heads,
            qkv_bias=True,
            out_bias=True,
            rope=False,
            causal=False,
            dropout=self.dropout,
        )

    def layer(self, cross: bool, first: bool) -> tuple[Operator, ...]:
        """Attention, attention to the encoder's output in the decoder, feed-forward, a norm after each."""
        own = attention_sublayer(self.stream, self.attention())
        feed = feed_forward_sublayer(self.stream, self.mlp)
        if not cross:
            return chain(own, feed)
        return chain(own, cross_attention_sublayer(self.stream, self.attention(), first), feed)


def read_detr(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type detr with its heads for classes and boxes; every layer is trained."""
    config = Config(raw, DEFAULTS, "detr")
    backbone = Config(_backbone(config, raw), resnet.DEFAULTS, "detr")
    widths, depths = backbone.integers("hidden_sizes"), backbone.integers("depths")
    if len(widths) != len(depths):
        raise InvalidModel(
            "depths and hidden_sizes name different numbers of stages", pointer="/backbone_config"
        )
    kinds, order, downsample = resnet.residual_stages(backbone, widths, depths)
    hidden, labels = config.integer("d_model"), class_labels(config, raw)
    stem = resnet.stem(backbone, backbone.integer("embedding_size"))
    built = {
        "embedding": stem,
        "input_projection": _projection(config, widths[-1], hidden),
        **_stacks(config, hidden),
        "head": _head(Stream(hidden, norm="layer"), labels),
    }
    kinds = {key: _frozen(kind) for key, kind in kinds.items()}
    kinds |= {
        key: _frozen(layer_kind(key, each, hidden, cut_after=key != "head")) for key, each in built.items()
    }
    return ModelSpec(
        name=name,
        family="detr",
        layers=_layers(order, config.count("encoder_layers"), config.count("decoder_layers")),
        kinds={
            key: kind for key, kind in kinds.items() if key != "decoder" or config.count("decoder_layers") > 1
        },
        stacks=(
            Stack(name="vision", length="image_size"),
            Stack(name="encoder", length="image_size", patch_size=downsample),
            Stack(
                name="decoder", length="image_size", reads=("encoder",), positions=config.count("num_queries")
            ),
        ),
        hidden_size=hidden,
        num_attention_heads=config.count("encoder_attention_heads"),
        num_kv_heads=config.count("encoder_attention_heads"),
        image_size=config.integer("image_size", high=65_536),
        semantics={"norm": "layer", "activation": config.text("activation_function"), "classes": labels},
        assumed=config.assumed,
        reader="huggingface",
    )


def _backbone(config: Config, raw: Mapping[str, object]) -> dict[str, object]:
    """The backbone's config: stated, or by name."""
    stated = raw.get("backbone_config")
    if isinstance(stated, Mapping) and stated.get("model_type", "resnet") == "resnet":
        return dict(stated)
    named = stated.get("backbone") if isinstance(stated, Mapping) else None
    name = named if isinstance(named, str) else config.text("backbone", tuple(BACKBONES))
    if name not in BACKBONES:
        raise InvalidModel(
            f"backbone is {name[:40]}; only {', '.join(BACKBONES)} are read, or a backbone_config of type resnet",
            pointer="/backbone_config" if named else "/backbone",
            allowed=tuple(BACKBONES),
        )
    layer_type, widths, depths = BACKBONES[name]
    return {
        "layer_type": layer_type,
        "hidden_sizes": widths,
        "depths": depths,
        "num_channels": config.integer("num_channels", high=1000),
        "embedding_size": 64,
        "downsample_in_first_stage": False,
    }


def _frozen(kind: LayerKind) -> LayerKind:
    """Batch norms as the fixed scales that DETR makes of them: a pass over memory, no parameters."""
    return kind.model_copy(
        update={
            "operators": tuple(
                Pool(
                    name=each.name,
                    inputs=each.inputs,
                    kind="add",
                    channels=each.channels,
                    downsample=each.downsample,
                )
                if isinstance(each, BatchNorm)
                else each
                for each in kind.operators
            )
        }
    )


def _projection(config: Config, width: int, hidden: int) -> tuple[Operator, ...]:
    """A convolution of one pixel to the width of the transformer, and positions where they are learned."""
    found: list[Operator] = [replicated("projection", "x", width, hidden, bias=True)]
    if config.text("position_embedding_type", ("sine", "learned")) == "learned":
        elements = 2 * POSITION_ROWS * (hidden // 2)
        found.append(PositionTable(name="positions", inputs=("projection",), elements=elements, width=hidden))
    return tuple(found)


def _stacks(config: Config, hidden: int) -> dict[str, Sequence[Operator]]:
    stream = Stream(hidden, norm="layer", placement="post", dropout=config.number("dropout") > 0)
    sides = {}
    for name in ("encoder", "decoder"):
        heads = config.count(f"{name}_attention_heads")
        check_heads(config, "d_model", hidden, heads, f"{name}_attention_heads")
        mlp = MlpShape(
            width=config.integer(f"{name}_ffn_dim"),
            gated=False,
            function=config.text("activation_function"),
            bias=True,
        )
        sides[name] = Side(stream, heads, mlp, config.number("attention_dropout") > 0)
    queries = config.count("num_queries") * hidden
    return {
        "encoder": sides["encoder"].layer(cross=False, first=False),
        "queries": (PositionTable(name="queries", elements=queries, width=hidden),),
        "decoder_first": sides["decoder"].layer(cross=True, first=True),
        "decoder": sides["decoder"].layer(cross=True, first=False),
    }


def _layers(order: Sequence[str], encoders: int, decoders: int) -> tuple[Layer, ...]:
    return (
        Layer(kind="embedding", role=Role.EMBEDDING, stack="vision"),
        *runs(order, stack="vision"),
        Layer(kind="input_projection", role=Role.CONNECTOR, stack="encoder"),
        *runs(("encoder",) * encoders, stack="encoder"),
        Layer(kind="queries", role=Role.EMBEDDING, stack="decoder"),
        *runs(("decoder_first", *("decoder",) * (decoders - 1)), stack="decoder"),
        Layer(kind="head", role=Role.HEAD, stack="decoder"),
    )


def _head(stream: Stream, labels: int) -> tuple[Operator, ...]:
    """A norm, a class for every query (one more for nothing), a box through three matrices."""
    hidden, classes = stream.hidden, labels + 1
    boxes: list[Operator] = []
    source = "final_norm"
    for number, width in enumerate((hidden, hidden, BOX), start=1):
        boxes.append(replicated(f"box_{number}", source, hidden, width, bias=True))
        source = f"box_{number}"
        if width != BOX:
            boxes.append(Activation(name=f"box_act_{number}", inputs=(source,), function="relu", width=width))
            source = f"box_act_{number}"
    return (
        stream.normalise("final_norm", "x"),
        replicated("classifier", "final_norm", hidden, classes, bias=True),
        *boxes,
        ClassLoss(name="loss", inputs=("classifier",), classes=classes),
    )
