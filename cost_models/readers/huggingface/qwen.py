"""Qwen 2, 2.5 and 3, dense and routed: biases on q/k/v (2) or q/k norms (3), shared expert (2 MoE)."""

from collections.abc import Callable, Mapping
from typing import Any

from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import (
    ATTENTION_TYPES,
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    check_experts,
    read_decoder,
    rope_semantics,
)
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **options(
        max_position_embeddings=32768,
        use_sliding_window=False,
        sliding_window=4096,
        max_window_layers=28,
    ),
}
_DENSE: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        vocab_size=151936,
        hidden_size=4096,
        intermediate_size=22016,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
    ),
}
_ROUTED: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        vocab_size=151936,
        hidden_size=2048,
        num_hidden_layers=24,
        decoder_sparse_step=1,
    ),
    **options(norm_topk_prob=False),
}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "qwen2": _DENSE,
    "qwen3": {**_DENSE, **sizes(attention_bias=False, head_dim=128)},
    "qwen2_moe": {
        **_ROUTED,
        **sizes(
            intermediate_size=5632,
            num_attention_heads=16,
            num_key_value_heads=16,
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
            num_experts=60,
            qkv_bias=True,
        ),
        **options(num_experts_per_tok=4),
    },
    "qwen3_moe": {
        **_ROUTED,
        **sizes(
            intermediate_size=6144,
            num_attention_heads=32,
            num_key_value_heads=4,
            moe_intermediate_size=768,
            num_experts=128,
            attention_bias=False,
        ),
        **options(num_experts_per_tok=8),
    },
}
"""Qwen2Config, Qwen3Config, Qwen2MoeConfig and Qwen3MoeConfig of transformers 5.24."""


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of one of the four families."""
    return lambda raw, name: _read(Config(raw, DEFAULTS[family], family), name)


def _read(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    moe = _moe(config) if config.family.endswith("moe") else None
    order = _order(config, decoder, moe)
    mlp = None
    if not moe or any(kind.startswith("dense") for kind in order):
        mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    kinds = {}
    for kind in dict.fromkeys(order):
        window = config.integer("sliding_window") if kind.endswith("sliding") else 0
        attention = attention_shape(config, decoder, window=window, **_features(config))
        feed_forward = moe if kind.startswith("moe") else mlp
        if feed_forward is not None:
            kinds[kind] = chain(
                attention_sublayer(stream, attention), feed_forward_sublayer(stream, feed_forward)
            )
    parts = Parts(kinds=kinds, order=order, semantics=_semantics(config, moe), moe=moe)
    return assemble(config, decoder, stream, parts)


def _features(config: Config) -> dict[str, Any]:
    if config.family.startswith("qwen3"):
        bias = config.flag("attention_bias")
        return {"qk_norm": True, "qkv_bias": bias, "out_bias": bias}
    return {"qkv_bias": config.flag("qkv_bias") if config.family == "qwen2_moe" else True}


def _moe(config: Config) -> MoeShape:
    second = config.family == "qwen2_moe"
    moe = MoeShape(
        experts=config.count("num_experts", "num_local_experts"),
        top_k=config.count("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
        function=config.text("hidden_act"),
        shared_width=config.integer("shared_expert_intermediate_size", low=0) if second else 0,
        shared_gate=second,
    )
    check_experts(config, moe.experts, moe.top_k)
    return moe


def _order(config: Config, decoder: Decoder, moe: MoeShape | None) -> tuple[str, ...]:
    windows = _windows(config, decoder)
    routed = _routed_layers(config, decoder) if moe else (False,) * decoder.layers
    mixed = any(windows)
    return tuple(
        ("moe" if sparse else "dense") + ("_sliding" if window else "_full" if mixed else "")
        for sparse, window in zip(routed, windows, strict=True)
    )


def _windows(config: Config, decoder: Decoder) -> tuple[bool, ...]:
    """Layers with a window: as listed, else under use_sliding_window from max_window_layers on."""
    layers = range(decoder.layers)
    if config.family != "qwen3_moe" and config.listed("layer_types"):
        listed = config.texts("layer_types", decoder.layers, ATTENTION_TYPES)
        return tuple(each == "sliding" for each in listed)
    if not config.flag("use_sliding_window") or config.raw("sliding_window") is None:
        return (False,) * decoder.layers
    if config.family == "qwen3_moe":
        return (True,) * decoder.layers
    first = config.integer("max_window_layers", low=0)
    if config.family == "qwen2_moe":
        return tuple(layer < first and layer % 2 == 0 for layer in layers)
    return tuple(layer >= first for layer in layers)


def _routed_layers(config: Config, decoder: Decoder) -> tuple[bool, ...]:
    dense = config.integers("mlp_only_layers", low=0) if config.listed("mlp_only_layers") else ()
    step = config.count("decoder_sparse_step")
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(decoder.layers))


def _semantics(config: Config, moe: MoeShape | None) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": config.text("hidden_act"),
        "position": "rope",
        **rope_semantics(config),
    }
    if moe:
        found |= {"router_scoring": "softmax", "router_normalise_top_k": config.flag("norm_topk_prob")}
    return found


read_qwen2 = reader("qwen2")
read_qwen2_moe = reader("qwen2_moe")
read_qwen3 = reader("qwen3")
read_qwen3_moe = reader("qwen3_moe")
