"""Blocks whose attention and feed-forward read the same input and are added together (GPT-J 2021, PaLM 2022).

Each branch moves its own data under tensor parallelism; an implementation that sums both before one reduction
sends half of it.
"""

from cost_models.operators import Residual
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_branch, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer, mlp_branch
from cost_models.readers.blocks.stream import Builder, Stream, chain


def parallel_sublayers(stream: Stream, attention: AttentionShape, mlp: MlpShape, norms: int = 1) -> Builder:
    """A builder for `chain`: x + attention(norm(x)) + feed_forward(norm(x)), with one norm for both or one each."""

    def build(source: str) -> tuple[Operator, ...]:
        found: list[Operator] = [stream.normalise("attn_norm", source)]
        read = "attn_norm"
        attended = attention_branch(attention, stream.hidden, read)
        found += attended.operators
        if norms > 1:
            read = "mlp_norm"
            found.append(stream.normalise(read, source))
        fed = mlp_branch(mlp, stream.hidden, read)
        found += fed.operators
        found.append(_residual(stream, "attn_residual", (source, *attended.outputs)))
        found.append(_residual(stream, "mlp_residual", ("attn_residual", *fed.outputs)))
        return tuple(found)

    return build


def dense_block(
    stream: Stream, attention: AttentionShape, mlp: MlpShape, parallel_norms: int = 0
) -> tuple[Operator, ...]:
    """One decoder block: sub-layers in sequence, or side by side behind `parallel_norms` norms."""
    if parallel_norms:
        return chain(parallel_sublayers(stream, attention, mlp, parallel_norms))
    return chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))


def _residual(stream: Stream, name: str, inputs: tuple[str, ...]) -> Residual:
    return Residual(name=name, inputs=inputs, width=stream.hidden, dropout=stream.dropout)
