"""DeepSeek-V2 and V3: latent attention, dense layers, then experts, multi-token prediction."""

from collections.abc import Mapping
from dataclasses import replace

from cost_models.operators import CrossEntropy, LmHead
from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE, Embedding
from cost_models.readers.blocks.attention import LatentAttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import HEAD_TIE, Builder, Stream, chain, column
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    check_experts,
    read_decoder,
    rope_semantics,
)
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.routed import dense_then_routed
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "deepseek_v3": {
        **DECODER_DEFAULTS,
        **sizes(
            vocab_size=129280,
            hidden_size=7168,
            intermediate_size=18432,
            moe_intermediate_size=2048,
            num_hidden_layers=61,
            num_attention_heads=128,
            num_key_value_heads=None,
            n_shared_experts=1,
            n_routed_experts=256,
            first_k_dense_replace=3,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            attention_bias=False,
        ),
        **options(
            max_position_embeddings=4096,
            num_experts_per_tok=8,
            n_group=8,
            topk_group=4,
            routed_scaling_factor=2.5,
            norm_topk_prob=True,
            scoring_func="sigmoid",
            num_nextn_predict_layers=0,
        ),
    },
    "deepseek_v2": {
        **DECODER_DEFAULTS,
        **sizes(
            vocab_size=102400,
            hidden_size=4096,
            intermediate_size=11008,
            moe_intermediate_size=1407,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=None,
            n_shared_experts=2,
            n_routed_experts=64,
            first_k_dense_replace=0,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
            attention_bias=False,
            mlp_bias=False,
        ),
        **options(
            num_experts_per_tok=None,
            n_group=None,
            topk_group=None,
            routed_scaling_factor=1.0,
            norm_topk_prob=False,
            scoring_func="softmax",
            num_nextn_predict_layers=0,
        ),
    },
}
"""DeepseekV3Config and DeepseekV2Config of transformers 5.24. The classes build no multi-token
prediction, so an absent num_nextn_predict_layers is none."""

V2_TOP_K = 6
"""Experts per token of DeepSeek-V2 (2024, section 3.1.2), taken where a config leaves it null."""


def read_deepseek_v2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type deepseek_v2."""
    return read_latent_moe(Config(raw, DEFAULTS["deepseek_v2"], "deepseek_v2"), name)


def read_deepseek_v3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type deepseek_v3."""
    return read_latent_moe(Config(raw, DEFAULTS["deepseek_v3"], "deepseek_v3"), name)


def read_latent_moe(config: Config, name: str) -> ModelSpec:
    """A decoder of latent attention, dense layers and routed experts; also the relatives of DeepSeek."""
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    order = dense_then_routed(config, decoder.layers)
    attend, moe = attention_sublayer(stream, latent_attention(config)), latent_moe(config)
    routed = replace(stream, placement="sandwich") if config.family == "axk1" else stream
    kinds = {"moe": chain(attend, feed_forward_sublayer(routed, moe))}
    if "dense" in order:
        kinds["dense"] = chain(attend, feed_forward_sublayer(stream, latent_mlp(config)))
    parts = Parts(
        kinds=kinds,
        order=order,
        semantics=latent_semantics(config),
        moe=moe,
        mtp_layers=config.integer("num_nextn_predict_layers", low=0, high=64),
        mtp=mtp_operators(stream, decoder, (attend, feed_forward_sublayer(routed, moe))),
    )
    return assemble(config, decoder, stream, parts)


def latent_attention(config: Config) -> LatentAttentionShape:
    """Sizes of the latent attention."""
    return LatentAttentionShape(
        heads=config.count("num_attention_heads"),
        q_lora_rank=config.optional_integer("q_lora_rank") or 0,
        kv_lora_rank=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        v_dim=config.integer("v_head_dim"),
        bias=config.flag("attention_bias"),
        dropout=config.number("attention_dropout") > 0,
    )


def latent_mlp(config: Config) -> MlpShape:
    """The feed-forward of the dense layers."""
    return MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.family == "deepseek_v2" and config.flag("mlp_bias"),
    )


def latent_moe(config: Config) -> MoeShape:
    """Routed and shared experts, all of one width."""
    width = config.integer("moe_intermediate_size")
    experts = config.count("n_routed_experts", "num_local_experts")
    top_k = config.optional_integer("num_experts_per_tok")
    if top_k is None:
        top_k = min(V2_TOP_K, experts)
        config.note("num_experts_per_tok", str(top_k), changes_parameters=False)
    check_experts(config, experts, top_k)
    check_groups(config, experts)
    shared = config.optional_integer("n_shared_experts", low=0) or 0
    bias = config.family == "deepseek_v2" and config.flag("mlp_bias")
    if bias and not shared:
        raise config.contradiction(
            "n_shared_experts", "n_shared_experts is 0, but mlp_bias is true; set mlp_bias to false"
        )
    groups, kept = _groups(config)
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=width,
        function=config.text("hidden_act"),
        shared_width=shared * width,
        bias=bias,
        fp32_router=True,
        groups=groups,
        kept_groups=kept,
    )


def _groups(config: Config) -> tuple[int, int]:
    """How many groups the third version chooses experts from, and how many it keeps; the second one keeps less of its
    choice, which is left out."""
    if config.family == "deepseek_v2":
        return 0, 0
    return config.optional_integer("n_group") or 1, config.optional_integer("topk_group") or 1


def check_groups(config: Config, experts: int) -> None:
    """Groups of experts are equal, and no more of them are kept than there are."""
    groups = config.optional_integer("n_group") or 1
    kept = config.optional_integer("topk_group") or 1
    if experts % groups:
        raise config.contradiction(
            "n_group", f"n_routed_experts {experts} is not a multiple of n_group {groups}; use a divisor"
        )
    if kept > groups:
        raise config.contradiction(
            "topk_group", f"topk_group {kept} is more than n_group {groups}; use at most {groups}"
        )


def mtp_operators(stream: Stream, decoder: Decoder, block: tuple[Builder, ...]) -> tuple[Operator, ...]:
    """One multi-token-prediction layer (DeepSeek-V3 2024, equations 21 to 23).

    The norms of the hidden state and of the next token's embedding, a 2h to h linear over both, one whole
    block, its own final norm, and the main model's table and head, which are tied and so count once.
    """
    hidden, vocab = stream.hidden, decoder.vocab
    head_tie = decoder.embedding_tie or HEAD_TIE
    before: tuple[Operator, ...] = (
        Embedding(name="mtp_embedding", vocab_size=vocab, width=hidden, tie=EMBEDDING_TIE),
        stream.normalise("enorm", "mtp_embedding"),
        stream.normalise("hnorm", "x"),
        column("eh_proj", "mtp_input", 2 * hidden, hidden),
    )
    inside = chain(*block, source="eh_proj")
    after: tuple[Operator, ...] = (
        stream.normalise("shared_head_norm", inside[-1].name),
        LmHead(name="logits", inputs=("shared_head_norm",), vocab_size=vocab, width=hidden, tie=head_tie),
        CrossEntropy(name="loss", inputs=("logits",), vocab_size=vocab),
    )
    return (*before, *inside, *after)


def is_greedy(config: Config) -> bool:
    """Whether groups of experts are named and play no part in the choice (DeepSeek-V2-Lite)."""
    return config.states("topk_method") and config.text("topk_method") == "greedy"


def latent_semantics(config: Config) -> dict[str, Scalar]:
    """What it takes to build the model beside its sizes."""
    return {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": config.text("hidden_act"),
        "position": "rope",
        "router_scoring": config.text("scoring_func"),
        "router_normalise_top_k": config.flag("norm_topk_prob"),
        "router_scaling": config.number("routed_scaling_factor"),
        "router_groups": None if is_greedy(config) else config.optional_integer("n_group"),
        "router_groups_kept": config.optional_integer("topk_group"),
        "router_bias_correction": config.family != "deepseek_v2",
        **rope_semantics(config),
    }
