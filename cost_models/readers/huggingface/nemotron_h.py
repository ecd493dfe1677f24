"""Nemotron-H: one mixer a layer, by a pattern of Mamba 2 (M), attention (*), MLP (-), experts (E)."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.mamba import MambaShape, mamba_sublayer
from cost_models.readers.blocks.stream import Builder, Stream, chain
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    check_experts,
    read_decoder,
    refuse_tied,
)
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.deepseek import mtp_operators
from cost_models.specs.model import ModelSpec

PATTERN: Mapping[str, str] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Letters of hybrid_override_pattern."""

BLOCK_TYPES: Mapping[str, str] = {
    "linear_attention": "mamba",
    "mamba": "mamba",
    "full_attention": "attention",
    "attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}
"""Values of layers_block_type, under its newer and older names."""

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=131072,
        hidden_size=4096,
        intermediate_size=21504,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        attention_bias=False,
        mlp_bias=False,
        use_bias=False,
        use_conv_bias=True,
        ssm_state_size=128,
        mamba_num_heads=128,
        mamba_head_dim=64,
        n_groups=8,
        conv_kernel=4,
        n_routed_experts=8,
        moe_intermediate_size=7688,
        moe_shared_expert_intermediate_size=7688,
        moe_latent_size=None,
        hybrid_override_pattern="ME*-",
    ),
    **options(
        num_experts_per_tok=2,
        max_position_embeddings=4096,
        layer_norm_epsilon=1e-5,
        mlp_hidden_act="relu2",
        chunk_size=128,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        num_nextn_predict_layers=0,
        mtp_hybrid_override_pattern="*E",
    ),
}
"""NemotronHConfig of transformers 5.24; the default pattern is its default list of four layers."""


def read_nemotron_h(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type nemotron_h."""
    config = Config(raw, DEFAULTS, "nemotron_h")
    refuse_tied(config)
    order = _order(config, raw)
    decoder = read_decoder(config, name, layers=len(order))
    stream = Stream(decoder.hidden)
    mtp_layers = config.integer("num_nextn_predict_layers", low=0, high=64)
    mtp_order = _pattern(config, "mtp_hybrid_override_pattern") if mtp_layers else ()
    moe = _moe(config) if "moe" in (*order, *mtp_order) else None
    builders: dict[str, Builder] = {}
    if "mamba" in order:
        builders["mamba"] = mamba_sublayer(stream, _mamba(config))
    if "attention" in (*order, *mtp_order):
        builders["attention"] = attention_sublayer(stream, _attention(config, decoder))
    if "mlp" in order:
        builders["mlp"] = feed_forward_sublayer(stream, _mlp(config))
    if moe:
        builders["moe"] = feed_forward_sublayer(stream, moe)
    mtp = mtp_operators(stream, decoder, tuple(builders[kind] for kind in mtp_order)) if mtp_layers else ()
    parts = Parts(
        kinds={kind: chain(build) for kind, build in builders.items()},
        order=order,
        semantics=_semantics(config, moe),
        moe=moe,
        mtp_layers=mtp_layers,
        mtp=mtp,
    )
    return assemble(config, decoder, stream, parts)


def _order(config: Config, raw: Mapping[str, object]) -> tuple[str, ...]:
    """Kinds by layer: a list (newer configs) or a pattern, as long as num_hidden_layers says."""
    for key in ("layers_block_type", "layer_types"):
        listed = raw.get(key)
        if isinstance(listed, list | tuple):
            order = config.texts(key, len(listed), BLOCK_TYPES)
            break
    else:
        key, order = "hybrid_override_pattern", _pattern(config, "hybrid_override_pattern")
    stated = config.count("num_hidden_layers") if config.states("num_hidden_layers") else len(order)
    if stated != len(order):
        raise config.contradiction(
            key, f"{key} names {len(order)} layers but num_hidden_layers is {stated}; make the two agree"
        )
    return order


def _pattern(config: Config, key: str) -> tuple[str, ...]:
    pattern = config.text(key)
    unknown = sorted(set(pattern) - set(PATTERN))
    if unknown or not pattern:
        wrong = f"holds {''.join(unknown)!r}" if unknown else "is empty"
        raise config.contradiction(key, f"{key} {wrong}; use only {' '.join(PATTERN)}, one letter a layer")
    return tuple(PATTERN[letter] for letter in pattern)


def _attention(config: Config, decoder: Decoder) -> AttentionShape:
    if config.flag("attention_bias"):
        raise config.contradiction(
            "attention_bias",
            "attention_bias is true, but the class builds attention without; set it to false",
        )
    return attention_shape(config, decoder, rope=False)


def _mamba(config: Config) -> MambaShape:
    shape = MambaShape(
        heads=config.count("mamba_num_heads"),
        head_dim=config.integer("mamba_head_dim"),
        state=config.integer("ssm_state_size"),
        groups=config.count("n_groups", "mamba_n_groups"),
        kernel_size=config.count("conv_kernel", "mamba_d_conv"),
        chunk=config.integer("chunk_size", "mamba_chunk_size"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias"),
    )
    if shape.heads % shape.groups:
        raise config.contradiction(
            "n_groups",
            f"mamba_num_heads {shape.heads} is not a multiple of n_groups {shape.groups}; use a divisor",
        )
    return shape


def _mlp(config: Config) -> MlpShape:
    return MlpShape(
        width=config.integer("intermediate_size"),
        gated=False,
        function=config.text("mlp_hidden_act"),
        bias=config.flag("mlp_bias"),
    )


def _moe(config: Config) -> MoeShape:
    moe = MoeShape(
        experts=config.count("n_routed_experts", "num_local_experts"),
        top_k=config.count("num_experts_per_tok"),
        width=config.integer("moe_intermediate_size"),
        gated=False,
        function=config.text("mlp_hidden_act"),
        shared_width=config.integer("moe_shared_expert_intermediate_size", low=0),
        bias=config.flag("mlp_bias"),
        latent=config.optional_integer("moe_latent_size") or 0,
    )
    check_experts(config, moe.experts, moe.top_k)
    return moe


def _semantics(config: Config, moe: MoeShape | None) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "norm": "rms",
        "norm_eps": config.number("layer_norm_epsilon"),
        "activation": config.text("mlp_hidden_act"),
        "position": "none",
    }
    if moe is None:
        return found
    return {
        **found,
        "router_scoring": "sigmoid",
        "router_normalise_top_k": config.flag("norm_topk_prob"),
        "router_scaling": config.number("routed_scaling_factor"),
        "router_groups": config.count("n_group"),
        "router_groups_kept": config.count("topk_group"),
    }
