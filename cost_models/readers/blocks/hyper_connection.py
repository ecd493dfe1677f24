"""Hyper-connections: several residual streams, of which a branch reads a weighted sum (DeepSeek-V4, Hunyuan 4)."""

from collections.abc import Callable

from cost_models.operators import Norm, Residual
from cost_models.operators.base import Operator
from cost_models.readers.blocks.stream import Branch, Builder, Size, Stream, replicated, scalars
from cost_models.specs.base import Frozen


class HyperShape(Frozen):
    """`streams` copies of the residual stream; `mixes`: each is a sum of all that went in as well."""

    streams: Size
    mixes: bool = True

    @property
    def weights(self) -> int:
        """Numbers computed for each token: what to read, what to write, and how to mix."""
        return self.streams * (2 + (self.streams if self.mixes else 0))


def hyper_sublayer(stream: Stream, shape: HyperShape, name: str, branch: Callable[[str], Branch]) -> Builder:
    """A builder for `chain`: weights from all streams, their sum, norm, branch, and all streams again.

    The sums are passes over memory; their few FLOPs (2 x streams^2 x hidden a token) are not counted.
    """
    wide = shape.streams * stream.hidden

    def build(source: str) -> tuple[Operator, ...]:
        weights = f"{name}_hyper"
        inner = branch(f"{name}_norm")
        return (
            Norm(name=f"{weights}_norm", inputs=(source,), width=wide, weight=False),
            replicated(weights, f"{weights}_norm", wide, shape.weights, bias=True),
            scalars(f"{weights}_scales", 3 if shape.mixes else 2),
            Residual(name=f"{name}_collapse", inputs=(source, weights), width=wide),
            stream.normalise(f"{name}_norm", f"{name}_collapse"),
            *inner.operators,
            Residual(name=f"{name}_residual", inputs=(source, *inner.outputs), width=wide),
        )

    return build


def hyper_head(stream: Stream, shape: HyperShape) -> tuple[Operator, ...]:
    """The sum of all streams in front of the final norm."""
    wide = shape.streams * stream.hidden
    return (
        Norm(name="hyper_norm", inputs=("x",), width=wide, weight=False),
        replicated("hyper", "hyper_norm", wide, shape.streams, bias=True),
        scalars("hyper_scale", 1),
        Residual(name="collapse", inputs=("x", "hyper"), width=wide),
    )
