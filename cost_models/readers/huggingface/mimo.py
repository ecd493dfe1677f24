"""MiMo: Qwen2 with multi-token prediction; MiMo-V2-Flash: windows with sinks and twice the key/value heads."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
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
from cost_models.readers.huggingface.deepseek import mtp_operators
from cost_models.readers.huggingface.qwen import DEFAULTS as QWEN_DEFAULTS
from cost_models.readers.huggingface.routed import (
    Shapes,
    build_kinds,
    dense_then_routed,
    joined,
    read_experts,
    semantics,
)
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **QWEN_DEFAULTS["qwen2"],
    **sizes(attention_bias=True),
    **options(num_nextn_predict_layers=0),
}
"""Qwen2Config of transformers 5.24, which MiMo's own configuration extends."""

FLASH_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=152576,
        hidden_size=4096,
        intermediate_size=16384,
        num_hidden_layers=48,
        num_attention_heads=64,
        num_key_value_heads=4,
        head_dim=192,
        v_head_dim=128,
        attention_bias=False,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        layer_types=None,
        first_k_dense_replace=1,
    ),
    **options(
        num_experts_per_tok=8,
        sliding_window=129,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
    ),
}
"""MiMoV2FlashConfig of transformers 5.24; null layer_types mean full attention first and every sixth layer."""


def read_mimo(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type mimo (MiMo-7B): its prediction layer is DeepSeek-V3's around a dense block."""
    config = Config(raw, DEFAULTS, "mimo")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    attention = attention_shape(config, decoder, qkv_bias=config.flag("attention_bias"))
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    block = (attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
    parts = Parts(
        kinds=build_kinds(stream, {"dense": (attention, mlp)}),
        order=("dense",) * decoder.layers,
        semantics=semantics(config),
        mtp_layers=config.integer("num_nextn_predict_layers", low=0, high=64),
        mtp=mtp_operators(stream, decoder, block),
    )
    return assemble(config, decoder, stream, parts)


def read_mimo_v2_flash(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type mimo_v2_flash."""
    config = Config(raw, FLASH_DEFAULTS, "mimo_v2_flash")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    routed, attended = dense_then_routed(config, decoder.layers), _attended(config, decoder.layers)
    order = joined(routed, attended)
    experts, top_k = read_experts(config, ("n_routed_experts", "num_local_experts", "num_experts"))
    function = config.text("hidden_act")
    moe = MoeShape(
        experts=experts, top_k=top_k, width=config.integer("moe_intermediate_size"), function=function
    )
    mlp = None
    if "dense" in routed:
        mlp = MlpShape(width=config.integer("intermediate_size"), function=function)
    shapes: dict[str, Shapes] = {}
    for kind, (word, reach) in dict(zip(order, zip(routed, attended, strict=True), strict=True)).items():
        attention = _flash_attention(config, decoder, window=reach == "sliding")
        shapes[kind] = (attention, moe if word == "moe" or mlp is None else mlp)
    found = semantics(config, router_scoring="sigmoid", router_bias_correction=True)
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def _flash_attention(config: Config, decoder: Decoder, window: bool) -> AttentionShape:
    """Layers with a window have sinks and twice the key/value heads."""
    keys = decoder.kv_heads * (2 if window else 1)
    stated = config.integer("swa_num_key_value_heads") if config.listed("swa_num_key_value_heads") else keys
    if decoder.heads % keys or (window and stated != keys):
        raise config.contradiction(
            "num_key_value_heads",
            f"layers with a window have twice num_key_value_heads, {keys}, which must divide "
            f"num_attention_heads {decoder.heads} and equal swa_num_key_value_heads {stated}; change one of them",
        )
    return attention_shape(
        config,
        decoder,
        kv_heads=keys,
        v_dim=config.integer("v_head_dim"),
        qkv_bias=config.flag("attention_bias"),
        window=config.integer("sliding_window") if window else 0,
        sinks=window,
    )


def _attended(config: Config, layers: int) -> tuple[str, ...]:
    if config.listed("layer_types"):
        return config.texts("layer_types", layers, ATTENTION_TYPES)
    found = tuple("full" if layer == 0 or (layer + 1) % 6 == 0 else "sliding" for layer in range(layers))
    if config.listed("hybrid_layer_pattern"):
        pattern = config.integers("hybrid_layer_pattern", low=0)
        if tuple("sliding" if each else "full" for each in pattern) != found:
            raise config.contradiction(
                "hybrid_layer_pattern",
                "hybrid_layer_pattern is not full attention first and every sixth layer; state layer_types",
            )
        return found
    if not config.states("layer_types"):
        config.note("layer_types", "full_attention first and every sixth layer", changes_parameters=True)
    return found
