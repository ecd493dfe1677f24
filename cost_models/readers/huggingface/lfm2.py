"""LFM2 (dense and routed) and LFM3: gated short convolutions, and attention with q/k norms on some layers."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.short_convolution import ShortConvolutionShape, short_convolution_sublayer
from cost_models.readers.blocks.stream import MAX_SIZE, Builder, Stream, chain
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import agreed, rope_of
from cost_models.readers.huggingface.routed import dense_then_routed, read_experts
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=65536,
        hidden_size=2560,
        intermediate_size=12288,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
        conv_bias=False,
        conv_L_cache=3,
        block_multiple_of=256,
        block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=True,
        full_attn_idxs=None,
    ),
    **options(max_position_embeddings=128000, norm_eps=1e-5, rope_theta=1e6),
}
"""Lfm2Config of transformers 5.24; without a list every layer has attention."""

MOE_DEFAULTS: Mapping[str, Default] = {
    **DEFAULTS,
    **sizes(
        hidden_size=2048,
        intermediate_size=7168,
        moe_intermediate_size=1792,
        num_dense_layers=2,
        num_experts=32,
    ),
    **options(num_experts_per_tok=4, norm_topk_prob=True, routed_scaling_factor=1.0),
}
"""Lfm2MoeConfig of transformers 5.24, which has no default for layer_types."""

LFM3_DEFAULTS: Mapping[str, Default] = {
    **DEFAULTS,
    **sizes(
        vocab_size=128000,
        hidden_size=2048,
        intermediate_size=7680,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=128,
        conv_L_cache=7,
        layer_types=None,
        use_sandwich_norm=True,
        use_attention_gate=True,
        attention_bias=False,
    ),
    **options(sliding_window=256),
}
"""Lfm3Config of transformers 5.24; null layer_types mean convolutions, windows and full attention by fours."""

TYPES: Mapping[str, str] = {"full_attention": "full", "conv": "conv"}
"""Values of layer_types, and the words used here."""

SPELLINGS: Mapping[str, str] = {
    "block_ff_dim": "intermediate_size",
    "tie_embedding": "tie_word_embeddings",
    "theta": "rope_theta",
}
"""Keys of the first LFM2 configs, and what they are called now."""


def read_lfm2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type lfm2."""
    renamed = {new: raw[old] for old, new in SPELLINGS.items() if old in raw and new not in raw}
    config = Config({**raw, **renamed}, DEFAULTS, "lfm2")
    for old, new in SPELLINGS.items():
        agreed(config, new, old)
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    order = _order(config, decoder.layers)
    mlp = feed_forward_sublayer(stream, MlpShape(width=_width(config)))
    attention = attention_shape(config, decoder, qk_norm=True)
    kinds = {
        word: chain(_mixer(config, stream, attention, word == "conv"), mlp) for word in dict.fromkeys(order)
    }
    return assemble(config, decoder, stream, Parts(kinds=kinds, order=order, semantics=_semantics(config)))


def read_lfm2_moe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type lfm2_moe: dense layers first, then experts."""
    renamed = {"tie_word_embeddings": raw["tie_embedding"]} if "tie_embedding" in raw else {}
    config = Config({**renamed, **raw}, MOE_DEFAULTS, "lfm2_moe")
    agreed(config, "tie_word_embeddings", "tie_embedding")
    decoder = read_decoder(config, name)
    stream, mixers = Stream(decoder.hidden), config.texts("layer_types", decoder.layers, TYPES)
    routed = dense_then_routed(config, decoder.layers, "num_dense_layers")
    experts, top_k = read_experts(config, ("num_experts", "num_local_experts"))
    moe = MoeShape(experts=experts, top_k=top_k, width=config.integer("moe_intermediate_size"))
    attention = attention_shape(config, decoder, qk_norm=True)
    kinds = {}
    order = tuple(f"{feed}_{mixer}" for feed, mixer in zip(routed, mixers, strict=True))
    for kind in dict.fromkeys(order):
        mlp = moe if kind.startswith("moe") else MlpShape(width=config.integer("intermediate_size"))
        mixer = _mixer(config, stream, attention, kind.endswith("conv"))
        kinds[kind] = chain(mixer, feed_forward_sublayer(stream, mlp))
    parts = Parts(kinds=kinds, order=order, semantics=_semantics(config), moe=moe)
    return assemble(config, decoder, stream, parts)


def _mixer(config: Config, stream: Stream, attention: AttentionShape, convolves: bool) -> Builder:
    if not convolves:
        return attention_sublayer(stream, attention)
    shape = ShortConvolutionShape(kernel_size=config.integer("conv_L_cache"), bias=config.flag("conv_bias"))
    return short_convolution_sublayer(stream, shape)


def read_lfm3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type lfm3: short convolutions, windows and full attention; a gate for each head, four norms."""
    config = Config(raw, LFM3_DEFAULTS, "lfm3")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, placement="sandwich" if config.flag("use_sandwich_norm") else "pre")
    if config.listed("layer_types"):
        order = config.texts("layer_types", decoder.layers, {**TYPES, "sliding_attention": "sliding"})
    else:
        config.raw("layer_types")
        order = tuple(
            ("sliding" if i else "conv", "conv", "full", "conv")[i % 4] for i in range(decoder.layers)
        )
    bias = config.flag("attention_bias")
    mlp = feed_forward_sublayer(stream, MlpShape(width=config.integer("intermediate_size")))
    kinds = {}
    for word in dict.fromkeys(order):
        attention = attention_shape(
            config,
            decoder,
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=True,
            gate=int(config.flag("use_attention_gate")),
            window=config.integer("sliding_window") if word == "sliding" else 0,
        )
        kinds[word] = chain(_mixer(config, stream, attention, word == "conv"), mlp)
    parts = Parts(kinds=kinds, order=order, semantics=_semantics(config))
    return assemble(config, decoder, Stream(decoder.hidden), parts)


def _order(config: Config, layers: int) -> tuple[str, ...]:
    """`full` or `conv` by layer: as listed by name or by number, which must agree."""
    named = config.texts("layer_types", layers, TYPES) if config.listed("layer_types") else ()
    if not config.listed("full_attn_idxs"):
        if not named:
            config.raw("full_attn_idxs")  # an absent list, noted: all layers
        return named or ("full",) * layers
    full = config.integers("full_attn_idxs", low=0)
    numbered = tuple("full" if i in full else "conv" for i in range(layers))
    if max(full, default=0) >= layers or (named and named != numbered):
        raise config.contradiction(
            "full_attn_idxs",
            f"full_attn_idxs names layers beyond {layers - 1}, or other layers than layer_types; make them agree",
        )
    return numbered


def _semantics(config: Config) -> dict[str, Scalar]:
    return {
        "norm": "rms",
        "norm_eps": config.number("norm_eps"),
        "activation": "silu",
        "position": "rope",
        **rope_of(config),
    }


def _width(config: Config) -> int:
    """intermediate_size as it is, or 2/3 of it times the multiplier, rounded up to a multiple."""
    stated = config.integer("intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim"):
        return stated
    width, step = 2 * stated // 3, config.integer("block_multiple_of")
    if config.raw("block_ffn_dim_multiplier") is not None:
        factor = config.number("block_ffn_dim_multiplier")
        if not 1 <= factor * width <= MAX_SIZE:
            raise config.contradiction(
                "block_ffn_dim_multiplier",
                f"block_ffn_dim_multiplier {factor:g} makes no feed-forward of 1 to {MAX_SIZE} features; change it",
            )
        width = int(factor * width)
    return -(-width // step) * step
