"""Cohere Command R (`cohere`) and R7B, A (`cohere2`): branches side by side, LayerNorm without bias, tied table."""

from collections.abc import Mapping
from dataclasses import replace

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import every_nth_full, mixed, rope_of, uniform
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=256000,
        hidden_size=8192,
        intermediate_size=22528,
        num_hidden_layers=40,
        num_attention_heads=64,
        num_key_value_heads=None,
        attention_bias=False,
        tie_word_embeddings=True,
    ),
    **options(max_position_embeddings=8192, layer_norm_eps=1e-5, logit_scale=0.0625),
}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "cohere": {**_SHARED, **sizes(use_qk_norm=False), **options(rope_theta=500000.0)},
    "cohere2": {**_SHARED, **options(sliding_window=4096, sliding_window_pattern=4)},
}
"""CohereConfig and Cohere2Config of transformers 5.24."""


def read_cohere(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type cohere; its q/k norms have weights of their own for every head."""
    config = Config(raw, DEFAULTS["cohere"], "cohere")
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    attention = attention_shape(
        config, decoder, qkv_bias=bias, out_bias=bias, qk_norm=config.flag("use_qk_norm")
    ).model_copy(update={"qk_norm_kind": "layer", "qk_norm_over": "heads"})
    stream = Stream(decoder.hidden, norm="layer", norm_bias=False)
    return uniform(decoder, stream, attention, _mlp(config), parallel_norms=1).model(
        config, decoder, _semantics(config)
    )


def read_cohere2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type cohere2: three windowed layers with rotation, then a full one without."""
    config = Config(raw, DEFAULTS["cohere2"], "cohere2")
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    full = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, rope=False)
    if full.head_dim * decoder.heads != decoder.hidden:
        raise config.contradiction(
            "head_dim",
            f"head_dim {full.head_dim} is not hidden_size {decoder.hidden} / num_attention_heads "
            f"{decoder.heads}, as Cohere2ForCausalLM needs; remove it",
        )
    order = every_nth_full(config, decoder.layers, "sliding_window_pattern")
    window = config.integer("sliding_window") if "sliding" in order else 0
    sliding = full.model_copy(update={"rope": True, "window": window})
    stream = Stream(decoder.hidden, norm="layer", norm_bias=False)
    blocks = replace(mixed(stream, full, sliding, order, _mlp(config)), parallel_norms=1)
    return blocks.model(config, decoder, {**_semantics(config), "rope_on": "sliding"})


def _mlp(config: Config) -> MlpShape:
    return MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))


def _semantics(config: Config) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "norm_eps": config.number("layer_norm_eps"),
        "position": "rope",
        "rope_interleaved": True,
        **rope_of(config),
    }
    if config.raw("logit_scale") is not None:
        found["logit_scale"] = config.number("logit_scale")
    return found
