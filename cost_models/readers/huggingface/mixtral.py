"""Mixtral: Llama's attention with routed experts in place of every feed-forward."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    check_experts,
    read_decoder,
    rope_semantics,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_local_experts=8,
    ),
    **options(
        num_experts_per_tok=2,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=1e6,
        sliding_window=None,
    ),
}
"""MixtralConfig of transformers 5.24."""


def read_mixtral(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type mixtral."""
    config = Config(raw, DEFAULTS, "mixtral")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    window = config.optional_integer("sliding_window") or 0
    moe = MoeShape(
        experts=config.count("num_local_experts", "num_experts"),
        top_k=config.count("num_experts_per_tok"),
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
    )
    check_experts(config, moe.experts, moe.top_k)
    attention = attention_shape(config, decoder, window=window)
    block = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, moe))
    semantics = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": moe.function,
        "position": "rope",
        "router_scoring": "softmax",
        "router_normalise_top_k": True,
        **rope_semantics(config),
    }
    parts = Parts(kinds={"moe": block}, order=("moe",) * decoder.layers, semantics=semantics, moe=moe)
    return assemble(config, decoder, stream, parts)
