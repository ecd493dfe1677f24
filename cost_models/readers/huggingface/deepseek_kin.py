"""Relatives of DeepSeek-V3: Kimi K2, GLM-4.7 Flash, Sarvam, A.X K1, Youtu; indexed: DeepSeek-V3.2 and GLM-5."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import LatentAttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import Parts, assemble, read_decoder
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.deepseek import (
    DEFAULTS,
    latent_attention,
    latent_mlp,
    latent_moe,
    latent_semantics,
    mtp_operators,
    read_latent_moe,
)
from cost_models.readers.huggingface.routed import build_kinds, dense_then_routed, semantics
from cost_models.specs.model import ModelSpec

_V3: Mapping[str, Default] = DEFAULTS["deepseek_v3"]
_INDEXED: Mapping[str, Default] = {
    **_V3,
    **sizes(index_head_dim=128, index_n_heads=64, indexer_types=None),
    **options(index_topk=2048, max_position_embeddings=163840),
}
KIN_DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "kimi_k2": _V3,
    "sarvam_mla": {
        **_V3,
        **sizes(
            vocab_size=262144,
            hidden_size=4096,
            intermediate_size=16384,
            num_hidden_layers=32,
            num_attention_heads=64,
            n_routed_experts=128,
            first_k_dense_replace=1,
            q_lora_rank=None,
        ),
        **options(n_group=1, topk_group=1),
    },
    "glm4_moe_lite": {
        **_V3,
        **sizes(
            vocab_size=154880,
            hidden_size=2048,
            intermediate_size=10240,
            moe_intermediate_size=1536,
            num_hidden_layers=47,
            num_attention_heads=20,
            n_routed_experts=64,
            first_k_dense_replace=1,
            q_lora_rank=768,
            qk_nope_head_dim=192,
            v_head_dim=256,
        ),
        **options(
            num_experts_per_tok=4,
            n_group=1,
            topk_group=1,
            routed_scaling_factor=1.8,
            max_position_embeddings=202752,
            rms_norm_eps=1e-5,
        ),
    },
    "axk1": {
        **_V3,
        **sizes(vocab_size=163840, num_attention_heads=64, n_routed_experts=192, first_k_dense_replace=1),
        **options(max_position_embeddings=32768),
    },
    "youtu": {
        **_V3,
        **sizes(
            vocab_size=128256,
            hidden_size=2048,
            intermediate_size=6144,
            num_hidden_layers=32,
            num_attention_heads=16,
            tie_word_embeddings=True,
        ),
        **options(max_position_embeddings=131072),
    },
    "deepseek_v32": _INDEXED,
    "glm_moe_dsa": {
        **_INDEXED,
        **sizes(
            vocab_size=154880,
            hidden_size=6144,
            intermediate_size=12288,
            num_hidden_layers=78,
            num_attention_heads=64,
            q_lora_rank=2048,
            qk_nope_head_dim=192,
            v_head_dim=256,
            index_n_heads=32,
            index_topk_freq=1,
            index_skip_topk_offset=2,
        ),
        **options(n_group=1, topk_group=1, max_position_embeddings=202752, rms_norm_eps=1e-5),
    },
}
"""SarvamMLAConfig, Glm4MoeLiteConfig, AXK1Config, YoutuConfig, DeepseekV32Config and GlmMoeDsaConfig of
transformers 5.24; Kimi K2 is read by DeepseekV3Config. An absent num_nextn_predict_layers is none, as the
classes build none."""

INDEXERS: Mapping[str, str] = {"full": "", "shared": "_shared"}
"""Values of indexer_types, and what they add to the name of a kind."""


def read_kimi_k2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type kimi_k2: DeepSeek-V3 with other sizes."""
    return read_latent_moe(Config(raw, KIN_DEFAULTS["kimi_k2"], "kimi_k2"), name)


def read_sarvam_mla(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type sarvam_mla: DeepSeek-V3 without compressed queries."""
    return read_latent_moe(Config(raw, KIN_DEFAULTS["sarvam_mla"], "sarvam_mla"), name)


def read_glm4_moe_lite(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type glm4_moe_lite."""
    return read_latent_moe(Config(raw, KIN_DEFAULTS["glm4_moe_lite"], "glm4_moe_lite"), name)


def read_axk1(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type axk1: routed layers have a norm after the experts too."""
    return read_latent_moe(Config(raw, KIN_DEFAULTS["axk1"], "axk1"), name)


def read_youtu(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type youtu: latent attention, no experts."""
    config = Config(raw, KIN_DEFAULTS["youtu"], "youtu")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    block = chain(
        attention_sublayer(stream, latent_attention(config)),
        feed_forward_sublayer(stream, latent_mlp(config)),
    )
    found: dict[str, Scalar] = semantics(config)
    parts = Parts(kinds={"dense": block}, order=("dense",) * decoder.layers, semantics=found)
    return assemble(config, decoder, stream, parts)


def read_deepseek_v32(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type deepseek_v32: an indexer in every layer."""
    return _read_indexed(Config(raw, KIN_DEFAULTS["deepseek_v32"], "deepseek_v32"), name)


def read_glm_moe_dsa(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type glm_moe_dsa: layers may use the choice of an earlier layer's indexer."""
    return _read_indexed(Config(raw, KIN_DEFAULTS["glm_moe_dsa"], "glm_moe_dsa"), name)


def _read_indexed(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    indexers = _indexers(config, decoder.layers)
    routed = dense_then_routed(config, decoder.layers)
    order = tuple(kind + indexer for kind, indexer in zip(routed, indexers, strict=True))
    full, moe = _indexed_attention(config), latent_moe(config)
    mlp = latent_mlp(config) if "dense" in routed else None
    shapes: dict[str, tuple[LatentAttentionShape, MlpShape | MoeShape]] = {}
    for kind in dict.fromkeys(order):
        shared = kind.endswith("_shared")
        attention = full.model_copy(update={"index_heads": 0}) if shared else full
        shapes[kind] = (attention, moe if kind.startswith("moe") or mlp is None else mlp)
    parts = Parts(
        kinds=build_kinds(stream, shapes),
        order=order,
        semantics=latent_semantics(config) | {"index_top_k": full.top_k},
        moe=moe,
        mtp_layers=config.integer("num_nextn_predict_layers", low=0, high=64),
        mtp=mtp_operators(
            stream, decoder, (attention_sublayer(stream, full), feed_forward_sublayer(stream, moe))
        ),
    )
    return assemble(config, decoder, stream, parts)


def _indexed_attention(config: Config) -> LatentAttentionShape:
    config.integer("q_lora_rank")  # the indexer reads the queries' latent
    return latent_attention(config).model_copy(
        update={
            "top_k": config.integer("index_topk"),
            "index_heads": config.count("index_n_heads"),
            "index_dim": config.integer("index_head_dim"),
        }
    )


def _indexers(config: Config, layers: int) -> tuple[str, ...]:
    """Which layers choose keys themselves: as listed, by a pattern of F and S, or every so many from an offset."""
    if config.family == "deepseek_v32":
        return ("",) * layers
    if config.listed("indexer_types"):
        return config.texts("indexer_types", layers, INDEXERS)
    pattern = config.text("index_topk_pattern") if config.listed("index_topk_pattern") else ""
    if pattern:
        if len(pattern) != layers or set(pattern) - set("FS"):
            raise config.contradiction(
                "index_topk_pattern",
                f"index_topk_pattern has {len(pattern)} letters for {layers} layers; give one F or S a layer",
            )
        return tuple("" if letter == "F" else "_shared" for letter in pattern)
    every, offset = config.count("index_topk_freq"), config.count("index_skip_topk_offset", low=0)
    return tuple("" if max(i - offset + 1, 0) % every == 0 else "_shared" for i in range(layers))
