"""Kimi Linear: delta attention with a decay for each feature, three layers to one of latent attention, experts."""

from collections.abc import Mapping

from cost_models.errors import InvalidModel
from cost_models.readers.blocks.attention import LatentAttentionShape
from cost_models.readers.blocks.feed_forward import MoeShape
from cost_models.readers.blocks.linear_attention import DeltaAttentionShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    read_decoder,
    refuse_tied,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.deepseek import latent_attention, latent_mlp
from cost_models.readers.huggingface.routed import (
    MIXER_TYPES,
    Mixer,
    Shapes,
    build_kinds,
    dense_then_routed,
    joined,
    read_experts,
    semantics,
)
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=163840,
        hidden_size=2304,
        intermediate_size=9216,
        moe_intermediate_size=1024,
        num_hidden_layers=27,
        num_attention_heads=32,
        num_key_value_heads=32,
        num_shared_experts=1,
        num_experts=256,
        first_k_dense_replace=1,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        attention_bias=False,
        linear_head_dim=128,
        linear_num_heads=32,
        linear_conv_kernel_dim=4,
    ),
    **options(
        num_experts_per_token=8,
        num_expert_group=1,
        topk_group=1,
        moe_renormalize=True,
        routed_scaling_factor=2.446,
        max_position_embeddings=1048576,
        rms_norm_eps=1e-5,
    ),
}
"""KimiLinearConfig of transformers 5.24."""

FULL_EVERY = 4
"""Without any list every so many layers after the first has latent attention, as that class has it."""

NESTED: Mapping[str, str] = {
    "head_dim": "linear_head_dim",
    "num_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
"""Keys of linear_attn_config (the form published with the weights), and what the class calls them."""

ONE_WAY: Mapping[str, tuple[object, ...]] = {
    "attention_bias": (False,),
    "moe_layer_freq": (1,),
    "num_nextn_predict_layers": (0, None),
    "mla_use_output_gate": (False, None),
    "attn_res_block_size": (0, None),
    "dense_ffn_hidden": (None,),
}
"""Keys that the class of transformers 5.24 does not know, or knows without a model that uses them."""


def read_kimi_linear(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type kimi_linear."""
    config = Config(_flattened(raw), DEFAULTS, "kimi_linear")
    for key, known in ONE_WAY.items():
        if config.states(key) and config.raw(key) not in known:
            raise config.contradiction(
                key, f"{key} is {str(config.raw(key))[:40]}; this reader knows {known[0]} only: leave it out"
            )
    refuse_tied(config)
    decoder = read_decoder(config, name)
    mixers = _mixers(config, decoder.layers)
    routed = dense_then_routed(config, decoder.layers)
    order = joined(routed, mixers)
    moe = _moe(config)
    shapes: dict[str, Shapes] = {}
    for kind, word, mixer in dict.fromkeys(zip(order, routed, mixers, strict=True)):
        shapes[kind] = (_mixer(config, mixer), moe if word == "moe" else latent_mlp(config))
    stream = Stream(decoder.hidden)
    found = semantics(
        config,
        router_scoring="sigmoid",
        router_bias_correction=True,
        router_normalise_top_k=config.flag("moe_renormalize"),
        router_scaling=config.number("routed_scaling_factor"),
    )
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def _flattened(raw: Mapping[str, object]) -> dict[str, object]:
    """The config with the keys of linear_attn_config beside the others, and model_max_length renamed."""
    found = dict(raw)
    nested = raw.get("linear_attn_config")
    if isinstance(nested, Mapping):
        for old, new in NESTED.items():
            if old in nested and raw.get(new, nested[old]) != nested[old]:
                raise InvalidModel(
                    f"linear_attn_config.{old} and {new} disagree; drop one of them", pointer=f"/{new}"
                )
            if old in nested:
                found[new] = nested[old]
        for key in ("full_attn_layers", "kda_layers"):
            if key in nested:
                found[f"linear_attn_config/{key}"] = nested[key]
    if "model_max_length" in raw:
        found.setdefault("max_position_embeddings", raw["model_max_length"])
    return found


def _mixers(config: Config, layers: int) -> tuple[str, ...]:
    """`linear` or `full`: as listed by layer, by number (from 1), else by the rule of the class."""
    key = "linear_attn_config/full_attn_layers"
    listed = config.texts("layer_types", layers, MIXER_TYPES) if config.listed("layer_types") else ()
    if not config.listed(key):
        if not listed:
            config.note("layer_types", f"every {FULL_EVERY}th full after the first", changes_parameters=True)
        return listed or tuple("linear" if i % FULL_EVERY or not i else "full" for i in range(layers))
    full = config.integers(key)
    numbered = tuple("full" if i + 1 in full else "linear" for i in range(layers))
    rest = "linear_attn_config/kda_layers"
    linear = config.integers(rest) if config.listed(rest) else set(range(1, layers + 1)) - set(full)
    if sorted((*full, *linear)) != list(range(1, layers + 1)) or (listed and listed != numbered):
        raise config.contradiction(
            key,
            f"full_attn_layers and kda_layers do not name each of the {layers} layers once (from 1), or "
            "layer_types says otherwise; make them agree",
        )
    return numbered


def _mixer(config: Config, word: str) -> Mixer:
    if word == "full":
        attention: LatentAttentionShape = latent_attention(config)
        return attention
    return DeltaAttentionShape(
        heads=config.count("linear_num_heads"),
        head_dim=config.integer("linear_head_dim"),
        kernel_size=config.integer("linear_conv_kernel_dim"),
    )


def _moe(config: Config) -> MoeShape:
    experts, top_k = read_experts(
        config, ("num_experts", "num_local_experts"), "num_experts_per_token", ("num_experts_per_tok",)
    )
    groups = config.optional_integer("num_expert_group", "n_group") or 1
    kept = config.optional_integer("topk_group") or 1
    if experts % groups or kept > groups:
        raise config.contradiction(
            "num_expert_group",
            f"{experts} experts do not make {groups} groups of which {kept} are kept; change one of them",
        )
    width = config.integer("moe_intermediate_size")
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=width,
        function=config.text("hidden_act"),
        shared_width=width * config.integer("num_shared_experts", "n_shared_experts", low=0),
    )
