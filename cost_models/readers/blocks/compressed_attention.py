"""DeepSeek-V4's attention: a window, and earlier keys that stand for several positions each."""

from cost_models.operators import Attention, Indexer, Linear, Norm, PositionTable, Rope
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.stream import Branch, Size, Width, column, replicated, row
from cost_models.specs.base import Frozen


class CompressedAttentionShape(Frozen):
    """Queries through a latent, one head of keys that are values too, an output through groups of heads.

    `rate` above 0: one further key for so many positions; `overlap`: made of two runs of them; `index_heads` above
    0: an indexer with compressed keys of its own chooses `top_k` of these.
    """

    heads: Size
    head_dim: Size
    rope_dim: Size
    q_lora_rank: Size
    groups: Size
    group_rank: Size
    window: Size
    dropout: bool = False
    rate: Width = 0
    overlap: bool = False
    top_k: Width = 0
    index_heads: Width = 0
    index_dim: Width = 0


def compressed_attention_branch(shape: CompressedAttentionShape, hidden: int, source: str) -> Branch:
    """Queries, keys, compressed keys and their choice, attention, output in two steps."""
    heads, dim = shape.heads, shape.head_dim
    wide, ranks = heads * dim, shape.groups * shape.group_rank
    found: list[Operator] = [
        replicated("q_down", source, hidden, shape.q_lora_rank),
        Norm(name="q_norm", inputs=("q_down",), width=shape.q_lora_rank),
        column("q_up", "q_norm", shape.q_lora_rank, wide),
        Norm(name="q_head_norm", inputs=("q_up",), width=dim, groups=heads, sharded=True, weight=False),
        replicated("kv", source, hidden, dim),
        Norm(name="kv_norm", inputs=("kv",), width=dim),
        Rope(name="rope", inputs=("q_head_norm", "kv_norm"), width=2 * heads * shape.rope_dim),
    ]
    if shape.rate:
        found += _compressor(shape, hidden, source, "compress", dim)
    if shape.index_heads:
        found += _indexer(shape, hidden, source)
    found += [
        Attention(
            name="core_attention",
            inputs=("q", "k", "k"),
            heads=heads,
            kv_heads=1,
            qk_dim=dim,
            v_dim=dim,
            window=shape.window,
            dropout=shape.dropout,
            sinks=True,
            compress=shape.rate,
            compress_top_k=shape.top_k,
        ),
        Linear(
            name="group_proj",
            inputs=("core_attention",),
            in_features=wide // shape.groups,  # each group of heads has its own matrix of group_rank columns
            parts=(Part(name="weight", features=ranks, max_shards=shape.groups),),
            communicates=False,
        ),
        row("proj", "group_proj", ranks, hidden),
    ]
    return Branch(tuple(found), ("proj",))


def _compressor(
    shape: CompressedAttentionShape, hidden: int, source: str, name: str, dim: int
) -> tuple[Operator, ...]:
    """Contents and weights of every position, biases of the weights by position, the norm of the sums."""
    series = 2 * dim if shape.overlap else dim
    return (
        replicated(f"{name}_kv", source, hidden, 2 * series),
        PositionTable(
            name=f"{name}_bias", inputs=(f"{name}_kv",), elements=shape.rate * series, width=series
        ),
        Norm(name=f"{name}_norm", inputs=(f"{name}_sum",), width=dim),
    )


def _indexer(shape: CompressedAttentionShape, hidden: int, source: str) -> tuple[Operator, ...]:
    return (
        *_compressor(shape, hidden, source, "index", shape.index_dim),
        replicated("index_q", "q_norm", shape.q_lora_rank, shape.index_heads * shape.index_dim),
        replicated("index_weights", source, hidden, shape.index_heads),
        Indexer(
            name="indexer",
            inputs=("index_q", "index_norm", "index_weights"),
            heads=shape.index_heads,
            head_dim=shape.index_dim,
            top_k=shape.top_k,
            compress=shape.rate,
        ),
    )
