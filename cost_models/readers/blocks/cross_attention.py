"""Cross-attention sub-layers: queries of one stack on keys and values of another's output."""

from cost_models.operators import Attention, Linear
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.attention import AttentionShape
from cost_models.readers.blocks.stream import Branch, Builder, Stream, column, row, sublayer


def cross_attention_branch(shape: AttentionShape, hidden: int, source: str, first: bool) -> Branch:
    """Queries of this stack on keys of the other.

    The encoder's output is one tensor for all layers, so only the `first` layer counts it as saved.
    """
    inner = shape.heads * shape.head_dim
    parts = tuple(Part(name=name, features=inner, max_shards=shape.heads) for name in ("k", "v"))
    found: tuple[Operator, ...] = (
        column("cross_q", source, hidden, inner, shape.qkv_bias),
        Linear(
            name="cross_kv",
            inputs=("encoder",),
            in_features=hidden,
            parts=parts,
            bias=shape.qkv_bias,
            on_context=True,
            saves_input=first,
        ),
        Attention(
            name="cross_attention",
            inputs=("cross_q", "cross_k", "cross_v"),
            heads=shape.heads,
            kv_heads=shape.heads,
            qk_dim=shape.head_dim,
            v_dim=shape.head_dim,
            causal=False,
            cross=True,
            dropout=shape.dropout,
        ),
        row("cross_proj", "cross_attention", inner, hidden, shape.out_bias),
    )
    return Branch(found, ("cross_proj",))


def cross_attention_sublayer(stream: Stream, shape: AttentionShape, first: bool) -> Builder:
    """A builder for `chain`: norm, cross-attention, residual."""
    return lambda source: sublayer(
        stream, "cross", source, lambda inside: cross_attention_branch(shape, stream.hidden, inside, first)
    )
