"""Mixers of linear attention: Qwen's gated delta net, Kimi's delta attention, MiniMax's lightning attention."""

from cost_models.operators import Activation, CausalConv, Linear, LinearAttention, Norm
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.stream import (
    Branch,
    Builder,
    Size,
    Stream,
    column,
    replicated,
    row,
    sublayer,
)
from cost_models.specs.base import Frozen


class DeltaNetShape(Frozen):
    """A gated delta net: heads of values, fewer heads of keys, a short convolution before them."""

    heads: Size
    key_heads: Size
    key_dim: Size
    value_dim: Size
    kernel_size: Size = 4
    chunk: Size = 64


class DeltaAttentionShape(Frozen):
    """Kimi Delta Attention: heads of one size for queries, keys and values, a decay for each key feature."""

    heads: Size
    head_dim: Size
    kernel_size: Size = 4
    chunk: Size = 64
    full_rank: bool = False
    """Decay and output gate straight from the stream, not through head_dim features each (Ling 3)."""


class LightningShape(Frozen):
    """Lightning attention with fixed decays: as many heads of keys as of values, all of head_dim."""

    heads: Size
    head_dim: Size
    function: str = "silu"
    chunk: Size = 256


def delta_net_branch(shape: DeltaNetShape, hidden: int, source: str) -> Branch:
    """One linear to q, k, v, output gate z, step b and decay a; convolution; delta rule; gated norm; output."""
    keys, values = shape.key_heads * shape.key_dim, shape.heads * shape.value_dim
    parts = (
        Part(name="q", features=keys),
        Part(name="k", features=keys),
        Part(name="v", features=values),
        Part(name="z", features=values),
        Part(name="b", features=shape.heads),
        Part(name="a", features=shape.heads),
    )
    found: tuple[Operator, ...] = (
        Linear(name="in_proj", inputs=(source,), in_features=hidden, parts=parts),
        *_short_convolution(2 * keys + values, shape.kernel_size),
        LinearAttention(
            name="delta_rule",
            inputs=("q", "k", "v"),
            heads=shape.heads,
            key_heads=shape.key_heads,
            qk_dim=shape.key_dim,
            v_dim=shape.value_dim,
            chunk=shape.chunk,
            delta=True,
            gated=True,
        ),
        Norm(
            name="gated_norm",
            inputs=("delta_rule",),
            width=shape.value_dim,
            groups=shape.heads,
            sharded=True,
        ),
        Activation(name="gate", inputs=("gated_norm", "z"), function="silu", width=values, gated=True),
        row("out_proj", "gate", values, hidden),
    )
    return Branch(found, ("out_proj",))


def delta_attention_branch(shape: DeltaAttentionShape, hidden: int, source: str) -> Branch:
    """q, k, v and step; decay and output gate through head_dim features each; delta rule; gated norm; output."""
    heads, dim = shape.heads, shape.head_dim
    width = heads * dim
    parts = (*(Part(name=name, features=width) for name in ("q", "k", "v")), Part(name="b", features=heads))
    found: tuple[Operator, ...] = (
        Linear(name="in_proj", inputs=(source,), in_features=hidden, parts=parts),
        *_short_convolution(3 * width, shape.kernel_size),
        *_projection(shape, hidden, source, "decay"),
        LinearAttention(
            name="delta_rule",
            inputs=("q", "k", "v"),
            heads=heads,
            key_heads=heads,
            qk_dim=dim,
            v_dim=dim,
            chunk=shape.chunk,
            delta=True,
            gated=True,
            by_feature=True,
        ),
        Norm(name="gated_norm", inputs=("delta_rule",), width=dim, groups=heads, sharded=True),
        *_projection(shape, hidden, source, "output_gate"),
        Activation(
            name="gate", inputs=("gated_norm", "output_gate_up"), function="sigmoid", width=width, gated=True
        ),
        row("out_proj", "gate", width, hidden),
    )
    return Branch(found, ("out_proj",))


def _projection(shape: DeltaAttentionShape, hidden: int, source: str, name: str) -> tuple[Operator, ...]:
    """A number for each feature of each head, through head_dim features unless `full_rank`."""
    width = shape.heads * shape.head_dim
    if shape.full_rank:
        return (column(f"{name}_up", source, hidden, width),)
    return (
        replicated(f"{name}_down", source, hidden, shape.head_dim),
        column(f"{name}_up", f"{name}_down", shape.head_dim, width),
    )


def _short_convolution(channels: int, kernel_size: int) -> tuple[Operator, ...]:
    """The causal convolution of queries, keys and values, and its SiLU."""
    return (
        CausalConv(name="conv", inputs=("qkv_raw",), channels=channels, kernel_size=kernel_size, bias=False),
        Activation(name="conv_act", inputs=("conv",), function="silu", width=channels),
    )


def lightning_branch(shape: LightningShape, hidden: int, source: str) -> Branch:
    """q, k, v through an activation; decayed attention; a norm over all heads; sigmoid gate; output."""
    width = shape.heads * shape.head_dim
    parts = tuple(Part(name=name, features=width) for name in ("q", "k", "v"))
    found: tuple[Operator, ...] = (
        Linear(name="qkv", inputs=(source,), in_features=hidden, parts=parts),
        Activation(name="qkv_act", inputs=("qkv",), function=shape.function, width=3 * width),
        LinearAttention(
            name="lightning",
            inputs=("q", "k", "v"),
            heads=shape.heads,
            key_heads=shape.heads,
            qk_dim=shape.head_dim,
            v_dim=shape.head_dim,
            chunk=shape.chunk,
        ),
        Norm(
            name="lightning_norm",
            inputs=("lightning",),
            width=shape.head_dim,
            groups=shape.heads,
            sharded=True,
            shared_weight=False,
        ),
        column("output_gate", source, hidden, width).model_copy(update={"communicates": False}),
        Activation(
            name="gate",
            inputs=("lightning_norm", "output_gate"),
            function="sigmoid",
            width=width,
            gated=True,
        ),
        row("out_proj", "gate", width, hidden),
    )
    return Branch(found, ("out_proj",))


LinearShape = DeltaNetShape | DeltaAttentionShape | LightningShape


def linear_attention_sublayer(stream: Stream, shape: LinearShape) -> Builder:
    """A builder for `chain`: norm, mixer of linear attention, residual."""

    def branch(source: str) -> Branch:
        if isinstance(shape, DeltaNetShape):
            return delta_net_branch(shape, stream.hidden, source)
        if isinstance(shape, DeltaAttentionShape):
            return delta_attention_branch(shape, stream.hidden, source)
        return lightning_branch(shape, stream.hidden, source)

    return lambda source: sublayer(stream, "attn", source, branch)
