"""Sizes of attention, feed-forward, experts and mixers from Megatron-LM arguments, with the framework's defaults."""

from typing import Final

from cost_models.errors import BadInput
from cost_models.readers.blocks.attention import AttentionShape, LatentAttentionShape
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape
from cost_models.readers.blocks.mamba import MambaShape
from cost_models.readers.blocks.stream import Stream
from planner.formats.megatron.arguments import Arguments

VOCABULARIES: Final = {"gpt": 50_257, "hybrid": 50_257, "bert": 30_522, "t5": 28_996}
"""Entries of the vocabulary files that the framework's own examples use (GPT-2's BPE, BERT's and cased BERT's
WordPiece): assumed where no size is stated, and listed as such."""

TOKENIZERS: Final = {"Llama2Tokenizer": 32_000}
"""Entries where the tokenizer's kind has one size."""


def stream_of(arguments: Arguments) -> Stream:
    """The residual stream: LayerNorm with a bias unless RMSNorm is asked for."""
    kind = arguments.text("normalization", "LayerNorm")
    if kind not in ("LayerNorm", "RMSNorm"):
        raise BadInput(
            f"--normalization {kind:.40} is not known; use LayerNorm or RMSNorm", pointer="/normalization"
        )
    return Stream(
        arguments.whole("hidden-size"),
        norm="rms" if kind == "RMSNorm" else "layer",
        dropout=is_plain_dropout(arguments),
    )


def is_plain_dropout(arguments: Arguments) -> bool:
    """Whether hidden dropout is on (0.1 by default)."""
    return arguments.number("hidden-dropout", 0.1) > 0


def has_bias(arguments: Arguments) -> bool:
    """Linears have biases unless --disable-bias-linear."""
    return not arguments.flag("disable-bias-linear")


def vocabulary(arguments: Arguments, program: str) -> int:
    """Entries of the vocabulary: stated, or those of the example files, with the extra ids of T5."""
    extra = arguments.whole("vocab-extra-ids", 0, low=0)
    if arguments.has("vocab-size"):
        return arguments.whole("vocab-size") + (extra if program == "t5" else 0)
    size = TOKENIZERS.get(arguments.text("tokenizer-type"), VOCABULARIES[program])
    arguments.assume("vocab-size", size)
    return size + extra


def attention_shape(arguments: Arguments, *, causal: bool = True) -> AttentionShape:
    """Multi-head, grouped-query, or latent attention."""
    hidden, heads = arguments.whole("hidden-size"), arguments.whole("num-attention-heads")
    if arguments.flag("multi-latent-attention"):
        return _latent(arguments, heads)  # type: ignore[return-value]
    if hidden % heads and not arguments.has("kv-channels"):
        raise BadInput(
            f"--hidden-size {hidden} is not divisible by --num-attention-heads {heads}; state --kv-channels"
        )
    grouped = arguments.flag("group-query-attention")
    rotary = (
        arguments.flag("use-rotary-position-embeddings")
        or arguments.text("position-embedding-type") == "rope"
    )
    return AttentionShape(
        heads=heads,
        kv_heads=arguments.whole("num-query-groups", heads) if grouped else heads,
        head_dim=arguments.whole("kv-channels", hidden // heads),
        qkv_bias=has_bias(arguments) or arguments.flag("add-qkv-bias"),
        out_bias=has_bias(arguments),
        qk_norm=arguments.flag("qk-layernorm"),
        qk_norm_kind="rms" if arguments.text("normalization") == "RMSNorm" else "layer",
        qk_norm_bias=arguments.flag("qk-layernorm") and arguments.text("normalization") != "RMSNorm",
        rope=rotary,
        causal=causal,
        dropout=arguments.number("attention-dropout", 0.1) > 0,
    )


def _latent(arguments: Arguments, heads: int) -> LatentAttentionShape:
    """Latent attention with the defaults of MLATransformerConfig."""
    return LatentAttentionShape(
        heads=heads,
        q_lora_rank=arguments.whole("q-lora-rank", 0, low=0),
        kv_lora_rank=arguments.whole("kv-lora-rank", 32),
        nope_dim=arguments.whole("qk-head-dim", 128),
        rope_dim=arguments.whole("qk-pos-emb-head-dim", 64),
        v_dim=arguments.whole("v-head-dim", 128),
        dropout=arguments.number("attention-dropout", 0.1) > 0,
    )


def _function(arguments: Arguments) -> tuple[bool, str]:
    """Whether the feed-forward is gated, and its function."""
    if arguments.flag("swiglu"):
        return True, "silu"
    return False, "relu2" if arguments.flag("squared-relu") else "gelu"


def feed_forward_width(arguments: Arguments) -> int:
    """--ffn-hidden-size, else 4 h, or 8/3 h rounded to 64 with a gate (megatron/training/arguments.py)."""
    hidden = arguments.whole("hidden-size")
    gated = arguments.flag("swiglu")
    return arguments.whole("ffn-hidden-size", int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)


def mlp_shape(arguments: Arguments) -> MlpShape:
    """The dense feed-forward."""
    gated, function = _function(arguments)
    return MlpShape(
        width=feed_forward_width(arguments), gated=gated, function=function, bias=has_bias(arguments)
    )


def moe_shape(arguments: Arguments) -> MoeShape:
    """Routed and shared experts."""
    gated, function = _function(arguments)
    bias = has_bias(arguments)
    experts, chosen = arguments.whole("num-experts"), arguments.whole("moe-router-topk", 2)
    if chosen > experts:
        raise BadInput(
            f"--moe-router-topk {chosen} chooses more than --num-experts {experts}; use 1 to {experts}",
            pointer="/moe-router-topk",
        )
    return MoeShape(
        experts=experts,
        top_k=chosen,
        width=arguments.whole("moe-ffn-hidden-size", feed_forward_width(arguments)),
        gated=gated,
        function=function,
        shared_width=arguments.whole("moe-shared-expert-intermediate-size", 0, low=0),
        shared_gate=arguments.flag("moe-shared-expert-gate"),
        latent=arguments.whole("moe-latent-size", 0, low=0),
        groups=arguments.whole("moe-router-num-groups", 0, low=0),
        kept_groups=arguments.whole("moe-router-group-topk", 0, low=0),
        bias=bias,
        expert_bias=bias,
    )


def mamba_shape(arguments: Arguments) -> MambaShape:
    """Mamba 2 with the defaults of MambaMixer: twice the hidden width in heads of 64, state 128, 8 groups, chunks of
    128 positions."""
    head_dim = arguments.whole("mamba-head-dim", 64)
    return MambaShape(
        heads=arguments.whole("mamba-num-heads", max(2 * arguments.whole("hidden-size") // head_dim, 1)),
        head_dim=head_dim,
        state=arguments.whole("mamba-state-dim", 128),
        groups=arguments.whole("mamba-num-groups", 8),
        chunk=128,
    )
