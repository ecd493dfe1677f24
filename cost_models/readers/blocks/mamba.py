"""Mamba mixers: Mamba 2 (Dao and Gu 2024) with its chunked scan, Mamba (Gu and Dao 2023) with its scan by channel."""

from cost_models.operators import Activation, CausalConv, Linear, Norm, SelectiveScan, StateSpaceScan
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.stream import Branch, Builder, Size, Stream, column, row, sublayer
from cost_models.specs.base import Frozen


class MambaShape(Frozen):
    """heads x head_dim inner features, `groups` of B and C of `state` each."""

    heads: Size
    head_dim: Size
    state: Size
    groups: Size = 1
    kernel_size: Size = 4
    chunk: Size = 256
    bias: bool = False
    out_bias: bool | None = None
    """Bias of the output linear where it is not that of the input linear (Falcon-H1)."""
    conv_bias: bool = True
    norm: bool = True
    """Whether a norm follows the gate (Falcon-H1 leaves it out)."""

    @property
    def inner(self) -> int:
        """Features inside the mixer."""
        return self.heads * self.head_dim


def mamba_branch(shape: MambaShape, hidden: int, source: str) -> Branch:
    """in_proj -> (z, xBC, dt); convolution and SiLU over xBC; scan; z gate; norm by group; out_proj."""
    inner, states = shape.inner, shape.groups * shape.state
    parts = (
        Part(name="z", features=inner),
        Part(name="x", features=inner),
        Part(name="B", features=states, max_shards=shape.groups),
        Part(name="C", features=states, max_shards=shape.groups),
        Part(name="dt", features=shape.heads),
    )
    found: tuple[Operator, ...] = (
        Linear(name="in_proj", inputs=(source,), in_features=hidden, parts=parts, bias=shape.bias),
        CausalConv(
            name="conv",
            inputs=("xBC",),
            channels=inner + 2 * states,
            kernel_size=shape.kernel_size,
            bias=shape.conv_bias,
        ),
        StateSpaceScan(
            name="scan",
            inputs=("conv",),
            heads=shape.heads,
            head_dim=shape.head_dim,
            state=shape.state,
            groups=shape.groups,
            chunk=shape.chunk,
        ),
        Activation(name="gate", inputs=("scan", "z"), function="silu", width=inner, gated=True),
    )
    last = "gate"
    if shape.norm:
        last = "gated_norm"
        norm = Norm(
            name=last,
            inputs=("gate",),
            width=inner // shape.groups,
            groups=shape.groups,
            sharded=True,
            shared_weight=False,
        )
        found = (*found, norm)
    bias = shape.bias if shape.out_bias is None else shape.out_bias
    return Branch((*found, row("out_proj", last, inner, hidden, bias)), ("out_proj",))


def mamba_sublayer(stream: Stream, shape: MambaShape) -> Builder:
    """A builder for `chain`: norm, Mamba 2 mixer, residual."""
    return lambda source: sublayer(
        stream, "mamba", source, lambda inside: mamba_branch(shape, stream.hidden, inside)
    )


class SelectiveShape(Frozen):
    """Mamba: `inner` channels, a step size from `rank` features, B and C of `state`, by head where there are heads."""

    inner: Size
    state: Size
    rank: Size
    heads: Size = 1
    kernel_size: Size = 4
    bias: bool = False
    conv_bias: bool = True
    norms: bool = False
    """Weighted norms over the step features, B and C (Jamba)."""


def selective_branch(shape: SelectiveShape, hidden: int, source: str) -> Branch:
    """in_proj -> (x, z); convolution and SiLU over x; x_proj -> (dt, B, C); dt_proj; scan; z gate; out_proj.

    The projection to dt, B and C reads divided channels, so it is row-parallel and its output whole on every rank.
    Heads divide x_proj and dt_proj into blocks, which changes neither their weights nor their FLOPs.
    """
    inner, mixing = shape.inner, 2 * shape.state
    parts = (Part(name="x", features=inner), Part(name="z", features=inner))
    found: list[Operator] = [
        Linear(name="in_proj", inputs=(source,), in_features=hidden, parts=parts, bias=shape.bias),
        CausalConv(
            name="conv",
            inputs=("conv_in",),
            channels=inner,
            kernel_size=shape.kernel_size,
            bias=shape.conv_bias,
        ),
        Activation(name="conv_act", inputs=("conv",), function="silu", width=inner),
        row("x_proj", "conv_act", inner, shape.rank + mixing),
    ]
    if shape.norms:
        found += [
            Norm(name="dt_norm", inputs=("dt_raw",), width=shape.rank),
            Norm(name="b_norm", inputs=("b_raw",), width=shape.state),
            Norm(name="c_norm", inputs=("c_raw",), width=shape.state),
        ]
    steps = "dt_norm" if shape.norms else "x_proj"
    found += [
        column("dt_proj", steps, shape.rank, inner, bias=True),
        SelectiveScan(
            name="scan",
            inputs=("conv_act", "dt_proj", "mixing"),
            channels=inner,
            state=shape.state,
            heads=shape.heads,
        ),
        Activation(name="gate", inputs=("scan", "z"), function="silu", width=inner, gated=True),
        row("out_proj", "gate", inner, hidden, shape.bias),
    ]
    return Branch(tuple(found), ("out_proj",))


def selective_sublayer(stream: Stream, shape: SelectiveShape) -> Builder:
    """A builder for `chain`: norm, Mamba mixer, residual."""
    return lambda source: sublayer(
        stream, "mamba", source, lambda inside: selective_branch(shape, stream.hidden, inside)
    )
