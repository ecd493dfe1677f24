"""LFM2, dense: gated short convolutions, and grouped-query attention with q/k norms on some layers."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.short_convolution import ShortConvolutionShape, short_convolution_sublayer
from cost_models.readers.blocks.stream import MAX_SIZE, Stream, chain
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import agreed, rope_of
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
    convolution = ShortConvolutionShape(
        kernel_size=config.integer("conv_L_cache"), bias=config.flag("conv_bias")
    )
    kinds = {
        "full": chain(attention_sublayer(stream, attention), mlp),
        "conv": chain(short_convolution_sublayer(stream, convolution), mlp),
    }
    semantics = {
        "norm": "rms",
        "norm_eps": config.number("norm_eps"),
        "activation": "silu",
        "position": "rope",
        **rope_of(config),
    }
    return assemble(config, decoder, stream, Parts(kinds=kinds, order=order, semantics=semantics))


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
