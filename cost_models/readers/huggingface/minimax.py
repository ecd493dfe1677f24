"""MiniMax-01: lightning attention in turn with full attention. MiniMax-M2: q/k norms over all heads. All routed."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MoeShape
from cost_models.readers.blocks.linear_attention import LightningShape
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
from cost_models.readers.huggingface.routed import (
    MIXER_TYPES,
    Shapes,
    build_kinds,
    joined,
    read_experts,
    rotated_features,
    semantics,
)
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
        layer_types=None,
    ),
    **options(
        num_experts_per_tok=2,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=1e6,
        sliding_window=None,
        block_size=256,
    ),
}
"""MiniMaxConfig of transformers 5.24; null layer_types mean full and linear attention in turn, full first."""


def read_minimax(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type minimax."""
    config = Config(raw, DEFAULTS, "minimax")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    moe = _moe(config)
    mixers = _mixers(config, decoder.layers)
    order = joined(("moe",) * decoder.layers, mixers)
    window = config.optional_integer("sliding_window") or 0
    full = attention_shape(config, decoder, window=window)
    lightning = LightningShape(
        heads=decoder.heads,
        head_dim=full.head_dim,
        function=config.text("hidden_act"),
        chunk=config.integer("block_size"),
    )
    shapes: dict[str, Shapes] = {
        kind: (full if mixer == "full" else lightning, moe)
        for kind, mixer in dict(zip(order, mixers, strict=True)).items()
    }
    found = semantics(config, router_scoring="softmax", router_normalise_top_k=True)
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def _mixers(config: Config, layers: int) -> tuple[str, ...]:
    if config.listed("layer_types"):
        return config.texts("layer_types", layers, MIXER_TYPES)
    if config.listed("attn_type_list"):
        return _numbered(config, layers)
    config.note("layer_types", "full_attention and linear_attention in turn", changes_parameters=True)
    return tuple("linear" if layer % 2 else "full" for layer in range(layers))


def _numbered(config: Config, layers: int) -> tuple[str, ...]:
    """attn_type_list of MiniMax-Text-01's own config: 1 for full attention, 0 for linear."""
    stated = config.integers("attn_type_list", low=0)
    if len(stated) != layers or set(stated) - {0, 1}:
        raise config.contradiction(
            "attn_type_list",
            f"attn_type_list has {len(stated)} entries for {layers} layers; give a 0 or 1 for each",
        )
    return tuple("full" if each else "linear" for each in stated)


def _moe(config: Config) -> MoeShape:
    experts, top_k = read_experts(config, ("num_local_experts", "num_experts"))
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
    )


def read_minimax_m2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type minimax_m2; the class builds no multi-token-prediction modules, so none is counted."""
    config = Config(raw, M2_DEFAULTS, "minimax_m2")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    moe = _moe(config)
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
