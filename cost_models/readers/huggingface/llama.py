"""Llama 1 to 3 and Mistral: grouped-query attention, rotary embedding, gated feed-forward, RMSNorm before."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
    rope_semantics,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.specs.model import ModelSpec

LLAMA_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
        attention_bias=False,
        mlp_bias=False,
    ),
}
"""LlamaConfig of transformers 5.24; a null num_key_value_heads means as many as heads."""

MISTRAL_DEFAULTS: Mapping[str, Default] = {
    **LLAMA_DEFAULTS,
    **sizes(intermediate_size=14336, num_key_value_heads=8),
    **options(max_position_embeddings=131072, sliding_window=4096),
}
"""MistralConfig of transformers 5.24."""


def read_llama(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type llama."""
    return _read(Config(raw, LLAMA_DEFAULTS, "llama"), name, window=0)


def read_mistral(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type mistral: Llama with an optional window on every layer, and no biases."""
    config = Config(raw, MISTRAL_DEFAULTS, "mistral")
    return _read(config, name, window=config.optional_integer("sliding_window") or 0)


def _read(config: Config, name: str, window: int) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    biases = config.family == "llama"
    bias = biases and config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, window=window)
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=biases and config.flag("mlp_bias"),
    )
    block = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
    semantics = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": mlp.function,
        "position": "rope",
        **rope_semantics(config),
    }
    parts = Parts(kinds={"dense": block}, order=("dense",) * decoder.layers, semantics=semantics)
    return assemble(config, decoder, stream, parts)
