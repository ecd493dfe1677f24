"""Gemma 3 text: windows with a full layer every sixth, norms before and after, q/k norms, tied table."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import (
    ATTENTION_TYPES,
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=262208,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        tie_word_embeddings=True,
        attention_bias=False,
    ),
    **options(
        hidden_activation="gelu_pytorch_tanh",
        max_position_embeddings=131072,
        sliding_window=4096,
        sliding_window_pattern=6,
        final_logit_softcapping=None,
        query_pre_attn_scalar=256,
        rope_theta=1e6,
        rope_local_base_freq=1e4,
    ),
}
"""Gemma3TextConfig of transformers 5.24."""


def read_gemma3_text(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gemma3_text."""
    config = Config(raw, DEFAULTS, "gemma3_text")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, placement="sandwich", norm_offset=True)
    order = _order(config, decoder)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_activation"))
    bias = config.flag("attention_bias")
    kinds = {}
    for kind in dict.fromkeys(order):
        window = config.integer("sliding_window") if kind == "sliding" else 0
        attention = attention_shape(
            config, decoder, qk_norm=True, qk_norm_offset=True, qkv_bias=bias, out_bias=bias, window=window
        )
        kinds[kind] = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
    soft_cap = config.raw("final_logit_softcapping") is not None
    parts = Parts(kinds=kinds, order=order, semantics=_semantics(config), soft_cap=soft_cap)
    return assemble(config, decoder, stream, parts)


def _order(config: Config, decoder: Decoder) -> tuple[str, ...]:
    """Kinds as listed, else a full layer at every `sliding_window_pattern`-th place."""
    if config.listed("layer_types"):
        return config.texts("layer_types", decoder.layers, ATTENTION_TYPES)
    pattern = config.count("sliding_window_pattern", "_sliding_window_pattern")
    return tuple("sliding" if (layer + 1) % pattern else "full" for layer in range(decoder.layers))


def _semantics(config: Config) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "norm_weight_offset": 1.0,
        "activation": config.text("hidden_activation"),
        "position": "rope",
        "embedding_scale": "sqrt(hidden_size)",
        "query_pre_attn_scalar": config.number("query_pre_attn_scalar"),
        **config.flat("rope_scaling", "rope_parameters"),
    }
    if not config.states("rope_parameters"):
        found["rope_theta"] = config.number("rope_theta")
        found["rope_theta_sliding"] = config.number("rope_local_base_freq")
    if config.raw("final_logit_softcapping") is not None:
        found["logit_soft_cap"] = config.number("final_logit_softcapping")
    return found
