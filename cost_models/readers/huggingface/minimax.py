"""MiniMax-M2: routed experts in every layer, q/k norms over all heads, half of a head rotated."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MoeShape
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
from cost_models.readers.huggingface.routed import build_kinds, read_experts, rotated_features, semantics
from cost_models.specs.model import ModelSpec

M2_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=200064,
        hidden_size=3072,
        intermediate_size=1536,
        num_hidden_layers=62,
        num_attention_heads=48,
        num_key_value_heads=8,
        head_dim=128,
        num_local_experts=256,
    ),
    **options(
        num_experts_per_tok=8,
        max_position_embeddings=196608,
        rms_norm_eps=1e-6,
        rope_theta=5e6,
        rotary_dim=None,
        scoring_func="sigmoid",
    ),
}
"""MiniMaxM2Config of transformers 5.24."""


def read_minimax_m2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type minimax_m2; the class builds no multi-token-prediction modules, so none is counted."""
    config = Config(raw, M2_DEFAULTS, "minimax_m2")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    experts, top_k = read_experts(config, ("num_local_experts", "num_experts"))
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
    )
    if config.listed("rotary_dim"):
        rotated = min(config.integer("rotary_dim"), head_dim(config, decoder))
    else:
        rotated = rotated_features(config, head_dim(config, decoder), default=1.0)
    attention = attention_shape(config, decoder, qk_norm=True, rope_dim=rotated)
    attention = attention.model_copy(update={"qk_norm_over": "width"})
    if config.listed("num_mtp_modules"):
        config.note("num_mtp_modules", "ignored: the class builds none", changes_parameters=True)
    found = semantics(
        config,
        router_scoring=config.text("scoring_func"),
        router_bias_correction=True,
        rotated_features=rotated,
    )
    parts = Parts(
        kinds=build_kinds(stream, {"moe": (attention, moe)}),
        order=("moe",) * decoder.layers,
        semantics=found,
        moe=moe,
    )
    return assemble(config, decoder, stream, parts)
