"""Gated short convolutions (LFM2): a causal convolution over a few positions between two gates."""

from cost_models.operators import Activation, CausalConv, Linear
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.stream import Branch, Builder, Size, Stream, row, sublayer
from cost_models.specs.base import Frozen


class ShortConvolutionShape(Frozen):
    """As many channels as the stream has features, each with `kernel_size` weights."""

    kernel_size: Size
    bias: bool = False
    """Of the convolution and of both linears."""


def short_convolution_branch(shape: ShortConvolutionShape, hidden: int, source: str) -> Branch:
    """One linear to B, C and x; B x; convolution; C times it; output linear."""
    parts = tuple(Part(name=name, features=hidden) for name in ("B", "C", "x"))
    found: tuple[Operator, ...] = (
        Linear(name="in_proj", inputs=(source,), in_features=hidden, parts=parts, bias=shape.bias),
        Activation(name="gate_in", inputs=("B", "conv_x"), function="identity", width=hidden, gated=True),
        CausalConv(
            name="conv", inputs=("gate_in",), channels=hidden, kernel_size=shape.kernel_size, bias=shape.bias
        ),
        Activation(name="gate_out", inputs=("C", "conv"), function="identity", width=hidden, gated=True),
        row("out_proj", "gate_out", hidden, hidden, shape.bias),
    )
    return Branch(found, ("out_proj",))


def short_convolution_sublayer(stream: Stream, shape: ShortConvolutionShape) -> Builder:
    """A builder for `chain`: norm, gated short convolution, residual."""
    return lambda source: sublayer(
        stream, "attn", source, lambda inside: short_convolution_branch(shape, stream.hidden, inside)
    )
