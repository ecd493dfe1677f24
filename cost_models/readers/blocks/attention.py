"""Attention sub-layers: grouped-query with its variants, and multi-head latent attention."""

from typing import Literal

from cost_models.operators import Activation, Attention, Indexer, Linear, Norm, Rope
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.stream import (
    Branch,
    Builder,
    Size,
    Stream,
    Width,
    column,
    replicated,
    row,
    sublayer,
)
from cost_models.specs.base import Frozen


class AttentionShape(Frozen):
    """Multi-head, grouped-query or multi-query attention; kv_heads 0 means as many as heads.

    `rope_dim` features of each head are rotated (0: all). Query/key norms work by head with one weight for all
    heads (`head`), with a weight for each (`heads`), or over all heads at once (`width`, OLMo 2).
    """

    heads: Size
    kv_heads: Width = 0
    head_dim: Size
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    qk_norm_kind: Literal["rms", "layer"] = "rms"
    qk_norm_over: Literal["head", "heads", "width"] = "head"
    qk_norm_bias: bool = False
    qk_norm_weight: bool = True
    """False: query and key norms without parameters (Llama 4)."""
    rope: bool = True
    rope_dim: Width = 0
    causal: bool = True
    window: Width = 0
    chunk: Width = 0
    """Above 0: queries see their own chunk of so many positions only (Llama 4)."""
    dropout: bool = False
    relative_buckets: Width = 0
    v_dim: Width = 0
    """Features of a value head, 0: as head_dim."""
    sinks: bool = False
    """A learned logit per head that takes part in the softmax (gpt-oss)."""
    soft_cap: bool = False
    """Scores are bounded by a scaled tanh (Gemma 2)."""
    gate: Width = 0
    """Sigmoid gates on the output, computed from the input: 0 none, 1 per head, value_dim one per feature."""
    gate_bias: bool = False
    fp32_softmax: bool = True
    """False: written in operators, the softmax runs in the compute dtype (GPT-2's and BERT's kind)."""
    one_projection: bool = False
    """The library's queries, keys and values are parts of one tensor that attention reads as they are (GPT-2)."""
    qk_norm_offset: bool = False
    """The weights of query and key norms count from one (Gemma 3)."""
    key_bias: bool = True
    """False: queries and values have a bias, keys have none (BEiT, Swin V2)."""

    @property
    def key_heads(self) -> int:
        """Number of key/value heads."""
        return self.kv_heads or self.heads

    @property
    def value_dim(self) -> int:
        """Features of a value head."""
        return self.v_dim or self.head_dim


class LatentAttentionShape(Frozen):
    """Multi-head latent attention (DeepSeek-V2 2024, section 2.1); q_lora_rank 0: queries are full.

    `top_k` above 0: a query looks at so many keys, which an indexer of `index_heads` chooses (DeepSeek-V3.2), or
    an earlier layer's where index_heads is 0.
    """

    heads: Size
    q_lora_rank: Width = 0
    kv_lora_rank: Size
    nope_dim: Size
    rope_dim: Size
    v_dim: Size
    bias: bool = False
    dropout: bool = False
    top_k: Width = 0
    index_heads: Width = 0
    index_dim: Width = 0
    sinks: bool = False
    gate: Width = 0
    """Sigmoid gates on the output: 0 none, 1 per head, v_dim one per feature."""
    fused_gate: bool = False
    """The gate comes out of the queries' up-projection, which reads a latent of twice the rank (A.X K2)."""


def attention_branch(shape: AttentionShape, hidden: int, source: str) -> Branch:
    """Self-attention: fused q/k/v linear, optional q/k norms, rotary embedding, attention, output linear."""
    heads, keys, dim, v_dim = shape.heads, shape.key_heads, shape.head_dim, shape.value_dim
    parts = (
        Part(name="q", features=heads * dim),
        Part(name="k", features=keys * dim, max_shards=keys),
        Part(name="v", features=keys * v_dim, max_shards=keys),
    )
    found: list[Operator] = [
        Linear(
            name="qkv",
            inputs=(source,),
            in_features=hidden,
            parts=parts,
            bias=shape.qkv_bias,
            unbiased=() if shape.key_bias else ("k",),
        )
    ]
    if shape.qk_norm:
        found += [_qk_norm(shape, "q", heads), _qk_norm(shape, "k", keys, max_shards=keys)]
    if shape.rope:
        rotated = ("q_norm", "k_norm") if shape.qk_norm else ("qkv",)
        found.append(Rope(name="rope", inputs=rotated, width=(heads + keys) * (shape.rope_dim or dim)))
    found.append(_core(shape))
    if shape.gate:
        found += _output_gate(shape, hidden, source)
    found.append(row("proj", found[-1].name, heads * v_dim, hidden, shape.out_bias))
    return Branch(tuple(found), ("proj",))


def _core(shape: AttentionShape) -> Attention:
    """The attention itself."""
    store = shape.heads * shape.head_dim + shape.key_heads * (shape.head_dim + shape.value_dim)
    return Attention(
        name="core_attention",
        inputs=("q", "k", "v"),
        heads=shape.heads,
        kv_heads=shape.key_heads,
        qk_dim=shape.head_dim,
        v_dim=shape.value_dim,
        causal=shape.causal,
        window=shape.window,
        chunk=shape.chunk,
        dropout=shape.dropout,
        relative_buckets=shape.relative_buckets,
        sinks=shape.sinks,
        soft_cap=shape.soft_cap,
        fp32_softmax=shape.fp32_softmax,
        value_store=store if shape.one_projection else 0,
        store_holds_qk=shape.one_projection,
    )


def _output_gate(shape: AttentionShape, hidden: int, source: str) -> tuple[Operator, ...]:
    """A column-parallel linear beside q/k/v on the input they gathered, and sigmoid(gate) x output."""
    gates = Part(name="weight", features=shape.heads * shape.gate)
    return (
        Linear(
            name="attn_gate",
            inputs=(source,),
            in_features=hidden,
            parts=(gates,),
            bias=shape.gate_bias,
            communicates=False,
        ),
        Activation(
            name="gated_attention",
            inputs=("core_attention", "attn_gate") if shape.gate > 1 else ("core_attention",),
            function="sigmoid",
            width=shape.heads * shape.value_dim,
            gated=shape.gate > 1,  # one gate a head is too little to count
        ),
    )


def _qk_norm(shape: AttentionShape, name: str, heads: int, max_shards: int = 0) -> Norm:
    """The norm of queries or keys."""
    whole = shape.qk_norm_over == "width"
    return Norm(
        name=f"{name}_norm",
        inputs=(f"{name}_raw",),
        kind=shape.qk_norm_kind,
        width=heads * shape.head_dim if whole else shape.head_dim,
        groups=1 if whole else heads,
        sharded=True,
        max_shards=max_shards,
        weight=shape.qk_norm_weight,
        bias=shape.qk_norm_bias,
        shared_weight=shape.qk_norm_over != "heads",
        offset=shape.qk_norm_offset,
    )


def latent_attention_branch(shape: LatentAttentionShape, hidden: int, source: str) -> Branch:
    """Latent attention as Megatron-LM lays it out: full down-projections, divided up-projections."""
    heads, qk_dim = shape.heads, shape.nope_dim + shape.rope_dim
    found = _latent_queries(shape, hidden, source)
    if shape.index_heads:
        found += _indexer(shape, hidden, source)
    up = (
        Part(name="k_nope", features=heads * shape.nope_dim),
        Part(name="v", features=heads * shape.v_dim),
    )
    found += [
        replicated("kv_down", source, hidden, shape.kv_lora_rank + shape.rope_dim, shape.bias),
        Norm(
            name="kv_norm",
            inputs=("kv_down",),
            width=shape.kv_lora_rank,
            input_width=shape.kv_lora_rank + shape.rope_dim,
        ),
        Linear(name="kv_up", inputs=("kv_norm",), in_features=shape.kv_lora_rank, parts=up),
        Rope(name="rope", inputs=("q_up", "kv_down"), width=2 * heads * shape.rope_dim),
        Attention(
            name="core_attention",
            inputs=("q", "k", "v"),
            heads=heads,
            kv_heads=heads,
            qk_dim=qk_dim,
            v_dim=shape.v_dim,
            window=shape.top_k,
            dropout=shape.dropout,
            value_store=heads * (shape.nope_dim + shape.v_dim),
            sinks=shape.sinks,
        ),
    ]
    if shape.gate:
        found += _latent_gate(shape, source, hidden)
    found.append(row("proj", found[-1].name, heads * shape.v_dim, hidden, shape.bias))
    return Branch(tuple(found), ("proj",))


def _latent_gate(shape: LatentAttentionShape, source: str, hidden: int) -> tuple[Operator, ...]:
    """Gates from the stream, unless they came with the queries, and sigmoid(gate) x output."""
    gates = "q_up" if shape.fused_gate else "attn_gate"
    applied = Activation(
        name="gated_attention",
        inputs=("core_attention", gates) if shape.gate > 1 else ("core_attention",),
        function="sigmoid",
        width=shape.heads * shape.v_dim,
        gated=shape.gate > 1,
    )
    if shape.fused_gate:
        return (applied,)
    return (column("attn_gate", source, hidden, shape.heads * shape.gate), applied)


def _latent_queries(shape: LatentAttentionShape, hidden: int, source: str) -> list[Operator]:
    """Queries through a latent of q_lora_rank, or straight from the stream."""
    features = shape.heads * (shape.nope_dim + shape.rope_dim)
    if not shape.q_lora_rank:
        return [column("q_up", source, hidden, features)]
    read = shape.q_lora_rank
    if shape.fused_gate:
        read, features = 2 * read, features + shape.heads * shape.gate
    return [
        replicated("q_down", source, hidden, shape.q_lora_rank, shape.bias),
        Norm(name="q_norm", inputs=("q_down",), width=shape.q_lora_rank),
        column("q_up", "q_norm", read, features),
    ]


def _indexer(shape: LatentAttentionShape, hidden: int, source: str) -> tuple[Operator, ...]:
    """Queries from the latent, one normalised key head and the heads' weights from the stream, and the choice."""
    queries = ("q_norm", shape.q_lora_rank) if shape.q_lora_rank else (source, hidden)
    return (
        replicated("index_q", *queries, shape.index_heads * shape.index_dim),
        replicated("index_k", source, hidden, shape.index_dim),
        Norm(name="index_k_norm", inputs=("index_k",), kind="layer", width=shape.index_dim, bias=True),
        replicated("index_weights", source, hidden, shape.index_heads),
        Indexer(
            name="indexer",
            inputs=("index_q", "index_k_norm", "index_weights"),
            heads=shape.index_heads,
            head_dim=shape.index_dim,
            top_k=shape.top_k,
        ),
    )


def attention_sublayer(stream: Stream, shape: AttentionShape | LatentAttentionShape) -> Builder:
    """A builder for `chain`: norm, attention of either kind, residual."""

    def branch(source: str) -> Branch:
        if isinstance(shape, LatentAttentionShape):
            return latent_attention_branch(shape, stream.hidden, source)
        return attention_branch(shape, stream.hidden, source)

    return lambda source: sublayer(stream, "attn", source, branch)
