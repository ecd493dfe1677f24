"""AFMoE (Trinity) and Laguna: gated attention with windows, q/k norms, dense layers first, shared experts."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    ATTENTION_TYPES,
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    head_dim,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import (
    Shapes,
    build_kinds,
    dense_then_routed,
    joined,
    read_experts,
    semantics,
)
from cost_models.specs.model import ModelSpec

AFMOE_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=200192,
        hidden_size=2048,
        intermediate_size=6144,
        moe_intermediate_size=1408,
        num_hidden_layers=32,
        num_dense_layers=1,
        num_attention_heads=16,
        num_key_value_heads=None,
        head_dim=128,
        num_experts=64,
        num_shared_experts=2,
        attention_bias=False,
    ),
    **options(
        num_experts_per_tok=6,
        global_attn_every_n_layers=4,
        sliding_window=1024,
        max_position_embeddings=16384,
        rms_norm_eps=1e-5,
    ),
}
LAGUNA_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=100352,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=40,
        num_attention_heads=48,
        num_key_value_heads=8,
        head_dim=128,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        num_experts=256,
        attention_bias=False,
        gating=True,
        first_k_dense_replace=1,
    ),
    **options(
        num_experts_per_tok=8,
        sliding_window=512,
        max_position_embeddings=131072,
        rope_theta=500000.0,
    ),
}
"""AfmoeConfig and LagunaConfig of transformers 5.24."""


def read_afmoe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type afmoe: norms before and after each branch, rotary positions under windows only."""
    config = Config(raw, AFMOE_DEFAULTS, "afmoe")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, placement="sandwich")
    routed = dense_then_routed(config, decoder.layers, key="num_dense_layers")
    attended = _windows(config, decoder.layers, "global_attn_every_n_layers")
    width = config.integer("moe_intermediate_size")
    shared = config.integer("num_shared_experts", low=0) * width
    moe, mlp = _feed_forwards(config, shared, routed)
    order, shapes = joined(routed, attended), {}
    for kind, (word, reach) in dict(zip(order, zip(routed, attended, strict=True), strict=True)).items():
        attention = attention_shape(
            config,
            decoder,
            **_bias(config),
            qk_norm=True,
            gate=head_dim(config, decoder),
            rope=reach == "sliding",
            window=config.integer("sliding_window") if reach == "sliding" else 0,
        )
        shapes[kind] = (attention, moe if word == "moe" or mlp is None else mlp)
    found = semantics(config, router_scoring="sigmoid", router_bias_correction=True)
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def read_laguna(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type laguna: the number of heads may differ between layers."""
    config = Config(raw, LAGUNA_DEFAULTS, "laguna")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    routed = dense_then_routed(config, decoder.layers)
    heads = _heads(config, decoder)
    attended = _windows(config, decoder.layers)
    if len(set(heads)) > 1:
        attended = tuple(f"{reach}_{count}heads" for reach, count in zip(attended, heads, strict=True))
    moe, mlp = _feed_forwards(config, config.integer("shared_expert_intermediate_size"), routed)
    per_head = config.raw("gating") in (True, "per-head")
    order, shapes = joined(routed, attended), dict[str, Shapes]()
    layers = zip(routed, attended, heads, strict=True)
    for kind, (word, reach, count) in dict(zip(order, layers, strict=True)).items():
        attention = attention_shape(
            config,
            decoder,
            **_bias(config),
            heads=count,
            qk_norm=True,
            gate=1 if per_head else head_dim(config, decoder),
            window=config.integer("sliding_window") if reach.startswith("sliding") else 0,
        )
        shapes[kind] = (attention, moe if word == "moe" or mlp is None else mlp)
    found = semantics(config, router_scoring="sigmoid", router_bias_correction=True)
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def _bias(config: Config) -> dict[str, bool]:
    bias = config.flag("attention_bias")
    return {"qkv_bias": bias, "out_bias": bias}


def _feed_forwards(
    config: Config, shared_width: int, routed: tuple[str, ...]
) -> tuple[MoeShape, MlpShape | None]:
    """Experts with the router's correction bias as a parameter, and the dense layers' feed-forward."""
    experts, top_k = read_experts(config, ("num_experts", "num_local_experts"))
    function = config.text("hidden_act")
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("moe_intermediate_size"),
        function=function,
        shared_width=shared_width,
        router_bias=True,
    )
    if "dense" not in routed:
        return moe, None
    return moe, MlpShape(width=config.integer("intermediate_size"), function=function)


def _windows(config: Config, layers: int, every_key: str = "") -> tuple[str, ...]:
    """As listed, else full in the last of every so many layers; without such a key full everywhere."""
    if config.listed("layer_types"):
        return config.texts("layer_types", layers, ATTENTION_TYPES)
    if not every_key:
        return ("full",) * layers
    every = config.count(every_key)
    return tuple("sliding" if (layer + 1) % every else "full" for layer in range(layers))


def _heads(config: Config, decoder: Decoder) -> tuple[int, ...]:
    if not config.listed("num_attention_heads_per_layer"):
        return (decoder.heads,) * decoder.layers
    heads = config.integers("num_attention_heads_per_layer")
    if len(heads) != decoder.layers or any(each % decoder.kv_heads for each in heads):
        raise config.contradiction(
            "num_attention_heads_per_layer",
            f"num_attention_heads_per_layer names {len(heads)} layers of {decoder.layers}, each a multiple of "
            f"num_key_value_heads {decoder.kv_heads}; make them agree",
        )
    return heads
