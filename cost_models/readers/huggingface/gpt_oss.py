"""gpt-oss: windows and full attention in turn with sinks, biased experts in every layer."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    ATTENTION_TYPES,
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import build_kinds, joined, read_experts, semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=201088,
        hidden_size=2880,
        intermediate_size=2880,
        num_hidden_layers=36,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        num_local_experts=128,
        attention_bias=True,
    ),
    **options(
        num_experts_per_tok=4,
        sliding_window=128,
        layer_types=None,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=150000.0,
        swiglu_limit=7.0,
    ),
}
"""GptOssConfig of transformers 5.24; null layer_types mean window and full in turn, a window first."""


def read_gpt_oss(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gpt_oss."""
    config = Config(raw, DEFAULTS, "gpt_oss")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    experts, top_k = read_experts(config, ("num_local_experts", "num_experts"))
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        router_bias=True,
        expert_bias=True,
    )
    types = _types(config, decoder.layers)
    order = joined(("moe",) * decoder.layers, types)
    bias, shapes = config.flag("attention_bias"), {}
    for kind, attended in dict(zip(order, types, strict=True)).items():
        window = config.optional_integer("sliding_window") or 0 if attended == "sliding" else 0
        features = {"qkv_bias": bias, "out_bias": bias, "sinks": True, "window": window}
        shapes[kind] = (attention_shape(config, decoder, **features), moe)
    found = semantics(
        config,
        router_scoring="softmax_of_top_k",
        activation_limit=config.number("swiglu_limit"),
    )
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def _types(config: Config, layers: int) -> tuple[str, ...]:
    if config.listed("layer_types"):
        return config.texts("layer_types", layers, ATTENTION_TYPES)
    if not config.states("layer_types"):
        config.note("layer_types", "sliding_attention and full_attention in turn", changes_parameters=False)
    return tuple("full" if layer % 2 else "sliding" for layer in range(layers))
