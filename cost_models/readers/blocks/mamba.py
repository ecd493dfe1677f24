"""Mamba 2 mixers (Dao and Gu 2024): input linear, short convolution, scan, gated norm, output linear."""

from cost_models.operators import Activation, CausalConv, Linear, Norm, StateSpaceScan
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.stream import Branch, Builder, Size, Stream, row, sublayer
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
    conv_bias: bool = True

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
        Norm(
            name="gated_norm",
            inputs=("gate",),
            width=inner // shape.groups,
            groups=shape.groups,
            sharded=True,
            shared_weight=False,
        ),
        row("out_proj", "gated_norm", inner, hidden, shape.bias),
    )
    return Branch(found, ("out_proj",))


def mamba_sublayer(stream: Stream, shape: MambaShape) -> Builder:
    """A builder for `chain`: norm, Mamba 2 mixer, residual."""
    return lambda source: sublayer(
        stream, "mamba", source, lambda inside: mamba_branch(shape, stream.hidden, inside)
    )
