"""Granite MoE: Mixtral's shape, optionally with a shared expert, windows and sinks."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape
from cost_models.readers.blocks.feed_forward import MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    ATTENTION_TYPES,
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import Shapes, build_kinds, joined, read_experts, semantics
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
        sliding_window=128,
        layer_types=None,
        embedding_multiplier=1.0,
        logits_scaling=1.0,
        residual_multiplier=1.0,
        attention_multiplier=1.0,
    ),
}
"""GraniteMoeConfig, GraniteMoeSharedConfig and GraniteMoeSWAConfig of transformers 5.24; null layer_types mean
full attention in the first of every four layers."""


def read_granitemoe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type granitemoe."""
    return _read(Config(raw, DEFAULTS, "granitemoe"), name)


def read_granitemoeshared(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type granitemoeshared: a shared expert of shared_intermediate_size, none where 0."""
    return _read(Config(raw, DEFAULTS, "granitemoeshared"), name)


def read_granitemoe_swa(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type granitemoe_swa: windows but in every fourth layer, sinks in all."""
    return _read(Config(raw, DEFAULTS, "granitemoe_swa"), name)


def _read(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    experts, top_k = read_experts(config, ("num_local_experts", "num_experts"))
    shared = config.family != "granitemoe"
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        shared_width=config.integer("shared_intermediate_size", low=0) if shared else 0,
    )
    attended = attended_layers(config, decoder.layers)
    order = joined(("moe",) * decoder.layers, attended)
    shapes: dict[str, Shapes] = {
        kind: (_attention(config, decoder, word), moe)
        for kind, word in dict(zip(order, attended, strict=True)).items()
    }
    scales = ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")
    found = semantics(config, router_scoring="softmax_of_top_k") | {key: config.number(key) for key in scales}
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def _attention(config: Config, decoder: Decoder, word: str) -> AttentionShape:
    bias = config.flag("attention_bias")
    return attention_shape(
        config,
        decoder,
        qkv_bias=bias,
        out_bias=bias,
        rope=not word.endswith("unrotated"),
        sinks=config.family == "granitemoe_swa",
        window=config.optional_integer("sliding_window") or 0 if word.startswith("sliding") else 0,
    )


def attended_layers(config: Config, layers: int) -> tuple[str, ...]:
    """`full` or `sliding`, and whether the layer's rotary base is 0, which leaves queries and keys unrotated."""
    if not config.family.endswith("_swa"):
        return ("full",) * layers
    if config.listed("layer_types"):
        words = config.texts("layer_types", layers, ATTENTION_TYPES)
    else:
        words = tuple("sliding" if layer % 4 else "full" for layer in range(layers))
        if not config.states("layer_types"):
            config.note("layer_types", "full_attention in the first of every four layers", False)
    bases = config.raw("layer_rope_theta") if config.listed("layer_rope_theta") else ()
    if not isinstance(bases, list | tuple) or (bases and len(bases) != layers):
        raise config.contradiction(
            "layer_rope_theta",
            f"layer_rope_theta must list {layers} numbers, one a layer; drop or complete it",
        )
    return tuple(
        f"{word}_unrotated" if bases and not bases[layer] else word for layer, word in enumerate(words)
    )
