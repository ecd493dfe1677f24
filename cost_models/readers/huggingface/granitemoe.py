"""Granite MoE: Mixtral's shape, optionally with a shared expert, windows and sinks."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import build_kinds, read_experts, semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
        num_local_experts=8,
        attention_bias=False,
        shared_intermediate_size=0,
    ),
    **options(
        num_experts_per_tok=2,
        embedding_multiplier=1.0,
        logits_scaling=1.0,
        residual_multiplier=1.0,
        attention_multiplier=1.0,
    ),
}
"""GraniteMoeConfig and GraniteMoeSharedConfig of transformers 5.24."""


def read_granitemoe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type granitemoe."""
    return _read(Config(raw, DEFAULTS, "granitemoe"), name)


def read_granitemoeshared(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type granitemoeshared: a shared expert of shared_intermediate_size, none where 0."""
    return _read(Config(raw, DEFAULTS, "granitemoeshared"), name)


def _read(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    experts, top_k = read_experts(config, ("num_local_experts", "num_experts"))
    shared = config.family == "granitemoeshared"
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        shared_width=config.integer("shared_intermediate_size", low=0) if shared else 0,
    )
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    scales = ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")
    found = semantics(config, router_scoring="softmax_of_top_k") | {key: config.number(key) for key in scales}
    parts = Parts(
        kinds=build_kinds(stream, {"moe": (attention, moe)}),
        order=("moe",) * decoder.layers,
        semantics=found,
        moe=moe,
    )
    return assemble(config, decoder, stream, parts)
