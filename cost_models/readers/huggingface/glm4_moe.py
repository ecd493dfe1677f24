"""GLM-4.5 and 4.6: grouped-query attention, dense layers first, shared expert, multi-token prediction."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    head_dim,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.deepseek import check_groups, mtp_operators
from cost_models.readers.huggingface.routed import (
    Shapes,
    build_kinds,
    dense_then_routed,
    read_experts,
    rotated_features,
    semantics,
)
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=151552,
        hidden_size=4096,
        intermediate_size=10944,
        num_hidden_layers=46,
        num_attention_heads=96,
        num_key_value_heads=8,
        moe_intermediate_size=1408,
        n_routed_experts=128,
        n_shared_experts=1,
        first_k_dense_replace=1,
        attention_bias=False,
        use_qk_norm=False,
    ),
    **options(
        num_experts_per_tok=8,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        num_nextn_predict_layers=1,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
    ),
}
"""Glm4MoeConfig of transformers 5.24, which names one multi-token-prediction layer."""

SARVAM_DEFAULTS: Mapping[str, Default] = {
    **DEFAULTS,
    **sizes(
        vocab_size=262144,
        intermediate_size=8192,
        num_hidden_layers=19,
        num_attention_heads=64,
        num_key_value_heads=4,
        head_dim=64,
        moe_intermediate_size=1024,
        use_qk_norm=True,
    ),
    **options(
        num_experts_per_tok=6,
        routed_scaling_factor=2.5,
        num_nextn_predict_layers=0,
        rms_norm_eps=1e-6,
        rope_theta=8e6,
    ),
}
"""SarvamMoEConfig of transformers 5.24."""

ROTATED_SHARE: Mapping[str, float] = {"glm4_moe": 0.5, "sarvam_moe": 1.0}
"""partial_rotary_factor that the configuration takes when a config states none."""


def read_glm4_moe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type glm4_moe."""
    return _read(_with_head_dim(raw), name)


def read_sarvam_moe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type sarvam_moe, which the class of GLM-4.5 builds."""
    return _read(Config(raw, SARVAM_DEFAULTS, "sarvam_moe"), name)


def _read(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    order = dense_then_routed(config, decoder.layers)
    rotated = rotated_features(config, head_dim(config, decoder), ROTATED_SHARE[config.family])
    attention = attention_shape(
        config,
        decoder,
        qkv_bias=config.flag("use_qkv_bias" if config.states("use_qkv_bias") else "attention_bias"),
        qk_norm=config.flag("use_qk_norm"),
        rope_dim=rotated,
    )
    moe = _moe(config)
    shapes: dict[str, Shapes] = {"moe": (attention, moe)}
    if "dense" in order:
        width = config.integer("intermediate_size")
        shapes["dense"] = (attention, MlpShape(width=width, function=config.text("hidden_act")))
    found = semantics(
        config,
        rotated_features=rotated,
        router_scoring="sigmoid",
        router_normalise_top_k=config.flag("norm_topk_prob"),
        router_scaling=config.number("routed_scaling_factor"),
        router_bias_correction=True,
    )
    block = (attention_sublayer(stream, attention), feed_forward_sublayer(stream, moe))
    parts = Parts(
        kinds=build_kinds(stream, shapes),
        order=order,
        semantics=found,
        moe=moe,
        mtp_layers=config.integer("num_nextn_predict_layers", "num_mtp_layers", low=0, high=64),
        mtp=mtp_operators(stream, decoder, block),
    )
    return assemble(config, decoder, stream, parts)


def _with_head_dim(raw: Mapping[str, object]) -> Config:
    """The class rounds hidden_size / num_attention_heads down where there is no head_dim (42 by default)."""
    config = Config(raw, DEFAULTS, "glm4_moe")
    if config.listed("head_dim"):
        return config
    derived = max(1, config.integer("hidden_size") // config.count("num_attention_heads"))
    whole = Config({**raw, "head_dim": derived}, DEFAULTS, "glm4_moe")
    whole.note("head_dim", f"{derived}, which is hidden_size / heads rounded down", changes_parameters=True)
    return whole


def _moe(config: Config) -> MoeShape:
    experts, top_k = read_experts(config, ("n_routed_experts", "num_local_experts", "num_experts"))
    check_groups(config, experts)
    width = config.integer("moe_intermediate_size")
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=width,
        function=config.text("hidden_act"),
        shared_width=config.integer("n_shared_experts", "num_shared_experts", low=0) * width,
    )
