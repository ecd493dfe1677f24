"""More decoders of latent attention: A.X K2, Ling 3 (Bailing hybrid) and MiniCPM3."""

from collections.abc import Mapping

from cost_models.operators import Scale
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import (
    LatentAttentionShape,
    attention_sublayer,
)
from cost_models.readers.blocks.feed_forward import (
    MlpShape,
    feed_forward_sublayer,
)
from cost_models.readers.blocks.linear_attention import DeltaAttentionShape
from cost_models.readers.blocks.stream import Stream, chain, replicated
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    read_decoder,
    refuse_tied,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.deepseek import latent_attention, latent_mlp, latent_moe
from cost_models.readers.huggingface.routed import (
    FEED_FORWARD_TYPES,
    MIXER_TYPES,
    Shapes,
    build_kinds,
    dense_then_routed,
    joined,
    semantics,
)
from cost_models.specs.model import ModelSpec

SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(num_attention_heads=32, num_key_value_heads=None, attention_bias=False, n_shared_experts=1),
    **options(
        num_experts_per_tok=8, n_group=None, topk_group=None, norm_topk_prob=True, mlp_layer_types=None
    ),
}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "axk2": {
        **SHARED,
        **sizes(
            vocab_size=163840,
            hidden_size=2048,
            intermediate_size=5120,
            moe_intermediate_size=512,
            num_hidden_layers=48,
            n_routed_experts=128,
            kv_lora_rank=128,
            q_lora_rank=384,
            qk_rope_head_dim=32,
            v_head_dim=64,
            qk_nope_head_dim=64,
            index_head_dim=128,
            index_n_heads=16,
            gated_norm_rank=16,
            first_k_dense_replace=1,
            moe_layer_freq=1,
        ),
        **options(index_topk=2048, max_position_embeddings=131072, routed_scaling_factor=2.5),
    },
    "bailing_hybrid": {
        **SHARED,
        **sizes(
            vocab_size=157184,
            hidden_size=2560,
            intermediate_size=6144,
            moe_intermediate_size=768,
            num_hidden_layers=42,
            n_routed_experts=512,
            kv_lora_rank=512,
            q_lora_rank=None,
            qk_rope_head_dim=64,
            v_head_dim=128,
            qk_nope_head_dim=128,
            head_dim=128,
            first_k_dense_replace=2,
            short_conv_kernel_size=4,
            layer_group_size=6,
        ),
        **options(
            n_group=8,
            topk_group=4,
            max_position_embeddings=262144,
            rope_theta=6e6,
            routed_scaling_factor=2.5,
        ),
    },
    "minicpm3": {
        **SHARED,
        **sizes(
            vocab_size=73448,
            hidden_size=2560,
            intermediate_size=6400,
            num_hidden_layers=62,
            num_attention_heads=40,
            tie_word_embeddings=True,
            kv_lora_rank=256,
            q_lora_rank=768,
            qk_nope_head_dim=64,
            qk_rope_head_dim=32,
            v_head_dim=None,
            mlp_bias=False,
        ),
        **options(max_position_embeddings=32768, rms_norm_eps=1e-5),
    },
}
"""AXK2Config, BailingHybridConfig and MiniCPM3Config of transformers 5.24. A null v_head_dim means
hidden_size / num_attention_heads."""


def read_axk2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type axk2: an indexer in every layer, gated queries, norms with a gate of their own."""
    config = Config(raw, DEFAULTS["axk2"], "axk2")
    decoder = read_decoder(config, name)
    order = _feeds(config, decoder.layers)
    attention = indexed_attention(config).model_copy(
        update={"fused_gate": True, "gate": config.integer("v_head_dim")}
    )
    stream, rank, moe = Stream(decoder.hidden), config.integer("gated_norm_rank"), latent_moe(config)
    kinds = {}
    for kind in dict.fromkeys(order):
        mlp = moe if kind == "moe" else latent_mlp(config)
        block = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
        gated = ("attn_norm", "mlp_norm") if kind == "moe" else ("attn_norm",)
        kinds[kind] = tuple(each for operator in block for each in _gated(operator, gated, rank))
    parts = Parts(kinds=kinds, order=order, semantics=sigmoid_semantics(config), moe=moe)
    return assemble(config, decoder, stream, parts)


def _gated(operator: Operator, names: tuple[str, ...], rank: int) -> tuple[Operator, ...]:
    """A norm, and behind some of them a gate computed from its output through `rank` features."""
    if operator.name not in names:
        return (operator,)
    width: int = getattr(operator, "width")  # noqa: B009
    gate = f"{operator.name}_gate"
    return (
        operator,
        replicated(f"{gate}_down", operator.name, width, rank),
        replicated(f"{gate}_up", f"{gate}_down", rank, width),
        Scale(name=gate, inputs=(operator.name, f"{gate}_up"), width=width, reads=2),
    )


def read_bailing_hybrid(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type bailing_hybrid: delta attention, every so many layers latent attention with a gate a head."""
    config = Config(raw, DEFAULTS["bailing_hybrid"], "bailing_hybrid")
    refuse_tied(config)
    decoder = read_decoder(config, name)
    every = config.count("layer_group_size")
    mixers = tuple("linear" if (i + 1) % every else "full" for i in range(decoder.layers))
    if config.listed("layer_types"):
        mixers = config.texts("layer_types", decoder.layers, MIXER_TYPES)
    routed = dense_then_routed(config, decoder.layers)
    order, moe = joined(routed, mixers), latent_moe(config)
    delta = DeltaAttentionShape(
        heads=decoder.heads,
        # The class saves the rotated part of a latent head as head_dim, and the delta heads' size beside it.
        head_dim=config.integer("linear_head_dim" if config.listed("linear_head_dim") else "head_dim"),
        kernel_size=config.integer("short_conv_kernel_size"),
        full_rank=True,
    )
    latent = latent_attention(config).model_copy(update={"gate": 1})
    shapes: dict[str, Shapes] = {
        kind: (latent if mixer == "full" else delta, moe if feed == "moe" else latent_mlp(config))
        for kind, feed, mixer in dict.fromkeys(zip(order, routed, mixers, strict=True))
    }
    stream = Stream(decoder.hidden)
    if not config.states("num_mtp_layers") or config.raw("num_mtp_layers"):
        config.note("num_mtp_layers", "0: the class builds none", changes_parameters=True)
    parts = Parts(
        kinds=build_kinds(stream, shapes), order=order, semantics=sigmoid_semantics(config), moe=moe
    )
    return assemble(config, decoder, stream, parts)


def read_minicpm3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type minicpm3: latent attention, no experts."""
    config = Config(raw, DEFAULTS["minicpm3"], "minicpm3")
    decoder = read_decoder(config, name)
    if decoder.hidden % decoder.heads:
        raise config.contradiction(
            "hidden_size",
            f"hidden_size {decoder.hidden} is not a multiple of num_attention_heads {decoder.heads}; make it one",
        )
    value = config.optional_integer("v_head_dim") or decoder.hidden // decoder.heads
    sized = Config({**raw, "v_head_dim": value}, DEFAULTS["minicpm3"], "minicpm3")
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    stream = Stream(decoder.hidden)
    kinds = build_kinds(stream, {"dense": (latent_attention(sized), mlp)})
    for each in sized.assumed:
        config.note(each.key, each.value, each.changes_parameters)
    parts = Parts(kinds=kinds, order=("dense",) * decoder.layers, semantics=semantics(config))
    return assemble(config, decoder, stream, parts)


def indexed_attention(config: Config) -> LatentAttentionShape:
    """Latent attention with an indexer that chooses keys."""
    config.integer("q_lora_rank")  # the indexer reads the queries' latent
    return latent_attention(config).model_copy(
        update={
            "top_k": config.integer("index_topk"),
            "index_heads": config.count("index_n_heads"),
            "index_dim": config.integer("index_head_dim"),
        }
    )


def _feeds(config: Config, layers: int) -> tuple[str, ...]:
    """As listed; else dense layers first (A.X K2: and between every so many routed ones)."""
    if config.listed("mlp_layer_types"):
        return config.texts("mlp_layer_types", layers, FEED_FORWARD_TYPES)
    first, step = config.integer("first_k_dense_replace", low=0), config.count("moe_layer_freq")
    return tuple("moe" if i >= first and i % step == 0 else "dense" for i in range(layers))


def sigmoid_semantics(config: Config) -> dict[str, str | int | float | bool | None]:
    """What it takes to build the model, with scores by sigmoid."""
    return semantics(
        config,
        router_scoring="sigmoid",
        router_normalise_top_k=config.flag("norm_topk_prob"),
        router_scaling=config.number("routed_scaling_factor"),
        router_bias_correction=True,
    )
