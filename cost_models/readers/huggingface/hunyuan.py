"""Hunyuan: version 1 dense and routed with a shared expert in every layer, version 3 with dense layers first."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    check_experts,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import (
    Shapes,
    build_kinds,
    dense_then_routed,
    read_experts,
    semantics,
)
from cost_models.specs.model import ModelSpec

_V1: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=290943,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
        attention_bias=False,
    ),
    **options(rms_norm_eps=1e-5),
}
_V1_MOE: Mapping[str, Default] = {**_V1, **sizes(num_experts=1), **options(moe_topk=1)}
_V3: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=120832,
        hidden_size=4096,
        intermediate_size=13312,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=128,
        attention_bias=False,
        mlp_bias=False,
        num_experts=192,
        num_shared_experts=1,
        moe_intermediate_size=1536,
        first_k_dense_replace=1,
    ),
    **options(
        num_experts_per_tok=8,
        router_scaling_factor=2.826,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=11_158_840.0,
    ),
}
"""HunYuanDenseV1Config, HunYuanMoEV1Config and HYV3Config of transformers 5.24."""


def read_hunyuan_v1_dense(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type hunyuan_v1_dense."""
    config = Config(raw, _V1, "hunyuan_v1_dense")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    parts = Parts(
        kinds=build_kinds(stream, {"dense": (_attention(config, decoder), mlp)}),
        order=("dense",) * decoder.layers,
        semantics=semantics(config),
    )
    return assemble(config, decoder, stream, parts)


def read_hunyuan_v1_moe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type hunyuan_v1_moe: experts and one shared expert of intermediate_size in every layer."""
    config = Config(raw, _V1_MOE, "hunyuan_v1_moe")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    width = config.integer("intermediate_size")
    for key, wanted in (("moe_intermediate_size", width), ("num_shared_expert", 1)):
        if config.listed(key) and _same(config, key) != wanted:
            raise config.contradiction(
                key, f"{key} is {_same(config, key)}, but the class builds {wanted}; set it to {wanted}"
            )
    experts, top_k = (
        _same(config, "num_experts", "num_local_experts"),
        _same(config, "moe_topk", "num_experts_per_tok"),
    )
    check_experts(config, experts, top_k, key="moe_topk")
    moe = MoeShape(
        experts=experts, top_k=top_k, width=width, function=config.text("hidden_act"), shared_width=width
    )
    parts = Parts(
        kinds=build_kinds(stream, {"moe": (_attention(config, decoder), moe)}),
        order=("moe",) * decoder.layers,
        semantics=semantics(config, router_scoring="softmax", router_normalise_top_k=True),
        moe=moe,
    )
    return assemble(config, decoder, stream, parts)


def read_hy_v3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type hy_v3: mlp_bias is on the dense layers and the shared expert."""
    config = Config(raw, _V3, "hy_v3")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    experts, top_k = read_experts(config, ("num_experts", "num_local_experts"))
    width, bias = config.integer("moe_intermediate_size"), config.flag("mlp_bias")
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=width,
        function=config.text("hidden_act"),
        shared_width=config.integer("num_shared_experts") * width,
        bias=bias,
    )
    order, attention = dense_then_routed(config, decoder.layers), _attention(config, decoder)
    shapes: dict[str, Shapes] = {"moe": (attention, moe)}
    if "dense" in order:
        dense = MlpShape(
            width=config.integer("intermediate_size"), function=config.text("hidden_act"), bias=bias
        )
        shapes["dense"] = (attention, dense)
    scaling = config.number("router_scaling_factor")
    found = semantics(config, router_scoring="sigmoid", router_scaling=scaling, router_bias_correction=True)
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def _attention(config: Config, decoder: Decoder) -> AttentionShape:
    bias = config.flag("attention_bias")
    return attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, qk_norm=True)


def _same(config: Config, key: str, *aliases: str) -> int:
    """A number, or a list of one number for every layer; layers that differ are refused."""
    stated = next((name for name in (key, *aliases) if config.states(name)), key)
    value = config.raw(key, *aliases)
    if not isinstance(value, list | tuple):
        return config.count(key, *aliases)
    numbers = set(config.integers(stated))
    if len(numbers) != 1:
        raise config.contradiction(
            stated, f"{stated} lists {len(numbers)} different numbers; give one number for all layers"
        )
    return numbers.pop()
