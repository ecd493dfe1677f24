"""Names of parameters in Hugging Face safetensors files, family by family, as transformers 5 writes them.

Names are those in files; `also` has other ones that files may have instead (transformers' own modules keep all experts
of a layer in one tensor). `{expert}` stands for the number of an expert: each then has a tensor of its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.executor.weights.layouts import Layout, Names, Spelling, Variant

BARE: Final = frozenset({"core_attention.sinks", "router.correction"})
"""Parameters whose name in files has no `.weight` at its end."""


IGNORED: Final = (
    r"\.rotary_emb\.inv_freq$",
    r"(^|\.)h\.\d+\.attn\.(masked_)?bias$",
    r"\.attention\.(masked_)?bias$",
    r"(^|\.)embeddings\.position_ids$",
    r"^bert\.pooler\.",
    r"^cls\.seq_relationship\.",
    r"^cls\.predictions\.decoder\.",
)
"""Tensors of files that are no parameters of the language model: masks and tables that are made anew, other heads."""

PREDICTION: Final[Mapping[str, str]] = {
    "enorm": "enorm",
    "hnorm": "hnorm",
    "eh_proj": "eh_proj",
    "shared_head_norm": "shared_head.norm",
}
"""Of multi-token-prediction layers, beside those of a block; their number follows the last block's (DeepSeek-V3)."""

PREDICTION_COPIES: Final = (r"\.embed_tokens\.weight$", r"\.shared_head\.head\.weight$")
"""What files of prediction layers hold of the model's own table and head."""

_LLAMA_INSIDE = {
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "qkv.q": "self_attn.q_proj",
    "qkv.k": "self_attn.k_proj",
    "qkv.v": "self_attn.v_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "proj": "self_attn.o_proj",
    "gate_up.gate": "mlp.gate_proj",
    "gate_up.up": "mlp.up_proj",
    "up.up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "core_attention.sinks": "self_attn.sinks",
    "router": "mlp.gate",
    "router.correction": "mlp.gate.e_score_correction_bias",
    "expert_gate_up.gate": "mlp.experts.{expert}.gate_proj",
    "expert_gate_up.up": "mlp.experts.{expert}.up_proj",
    "expert_down": "mlp.experts.{expert}.down_proj",
    "shared_gate_up.gate": "mlp.shared_experts.gate_proj",
    "shared_gate_up.up": "mlp.shared_experts.up_proj",
    "shared_down": "mlp.shared_experts.down_proj",
}
_LLAMA_OUTSIDE = {"embedding.table": "model.embed_tokens", "final_norm": "model.norm", "logits": "lm_head"}
_EXPERTS = ("expert_gate_up.gate", "expert_gate_up.up", "expert_down")
_TOGETHER: Mapping[str, tuple[Spelling, ...]] = {
    "expert_gate_up.gate": (("mlp.experts.gate_up_proj", "experts"),),
    "expert_gate_up.up": (("mlp.experts.gate_up_proj", "experts"),),
    "expert_down": (("mlp.experts.down_proj", "experts"),),
}
_MIXTRAL = {
    "router": "block_sparse_moe.gate",
    "router.correction": "block_sparse_moe.e_score_correction_bias",
    "expert_gate_up.gate": "block_sparse_moe.experts.{expert}.w1",
    "expert_gate_up.up": "block_sparse_moe.experts.{expert}.w3",
    "expert_down": "block_sparse_moe.experts.{expert}.w2",
}
_MIXTRAL_ALSO: Mapping[str, tuple[Spelling, ...]] = {
    **_TOGETHER,
    "router": (("mlp.gate", "plain"),),
    "router.correction": (("mlp.e_score_correction_bias", "plain"),),
}
_SANDWICH = {
    "attn_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
_LATENT = {
    "q_down": "self_attn.q_a_proj",
    "q_norm": "self_attn.q_a_layernorm",
    "q_up": "self_attn.q_b_proj",
    "kv_down": "self_attn.kv_a_proj_with_mqa",
    "kv_norm": "self_attn.kv_a_layernorm",
    "kv_up.k_nope": "self_attn.kv_b_proj",
    "kv_up.v": "self_attn.kv_b_proj",
}
_FUSED_QKV = ("qkv.q", "qkv.k", "qkv.v")


def _llama(changed: Mapping[str, str] | None = None, layouts: Mapping[str, Layout] | None = None) -> Names:
    """Names as Llama's, some of them changed."""
    inside = {**_LLAMA_INSIDE, **(changed or {})}
    layout: dict[str, Layout] = {**dict.fromkeys(_EXPERTS, "expert"), **(layouts or {})}
    return Names("model.layers.{}.", inside, _LLAMA_OUTSIDE, layout, _TOGETHER)


def _fused(name: str, *, qkv: Layout) -> tuple[dict[str, str], dict[str, Layout]]:
    """Queries, keys and values in one tensor."""
    return dict.fromkeys(_FUSED_QKV, name), dict.fromkeys(_FUSED_QKV, qkv)


_GPT2_QKV = _fused("attn.c_attn", qkv="concat_transposed")
_NEOX_QKV = _fused("attention.query_key_value", qkv="by_head")
_BLOOM_QKV = _fused("self_attention.query_key_value", qkv="by_head")
_FALCON_QKV = _fused("self_attention.query_key_value", qkv="by_key_head")
_GATE_UP: tuple[dict[str, str], dict[str, Layout]] = (
    dict.fromkeys(("gate_up.gate", "gate_up.up"), "mlp.gate_up_proj"),
    dict.fromkeys(("gate_up.gate", "gate_up.up"), "concat"),
)
_PHI3_QKV = _fused("self_attn.qkv_proj", qkv="concat")
_BLOOM_INSIDE = {
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "proj": "self_attention.dense",
    "up.up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}
_BLOOM_OUTSIDE = {
    "embedding.table": "transformer.word_embeddings",
    "embedding_norm": "transformer.word_embeddings_layernorm",
    "final_norm": "transformer.ln_f",
    "logits": "lm_head",
}

FAMILIES: Mapping[str, Names] = {
    **{
        family: _llama()
        for family in (
            "arcee",
            "cohere",
            "cohere2",
            "cwm",
            "ernie4_5",
            "gemma",
            "glm4_moe",
            "granite",
            "helium",
            "llama",
            "ministral",
            "mistral",
            "nemotron",
            "olmo",
            "olmoe",
            "qwen2",
            "qwen3",
            "qwen3_moe",
            "seed_oss",
            "smollm3",
            "stablelm",
        )
    },
    **{family: _llama(_SANDWICH) for family in ("gemma2", "gemma3_text", "olmo2", "olmo3", "exaone4")},
    **{family: replace(_llama(_MIXTRAL), also=_MIXTRAL_ALSO) for family in ("mixtral", "minimax_m2")},
    "starcoder2": _llama({"up.up": "mlp.c_fc", "down": "mlp.c_proj"}),
    **{
        family: replace(
            _llama(_LATENT, dict.fromkeys(("kv_up.k_nope", "kv_up.v"), "by_head")),
            variants=(Variant({"q_up": "self_attn.q_proj"}, lacks="q_down"),),
        )
        for family in ("deepseek_v2", "deepseek_v3")
    },
    "glm": _llama(*_GATE_UP),
    "phi": replace(
        _llama(
            {
                "proj": "self_attn.dense",
                "up.up": "mlp.fc1",
                "down": "mlp.fc2",
                "q_norm": "self_attn.q_layernorm",
                "k_norm": "self_attn.k_layernorm",
            }
        ),
        outside={**_LLAMA_OUTSIDE, "final_norm": "model.final_layernorm"},
    ),
    "gptj": Names(
        "transformer.h.{}.",
        {
            **{f"qkv.{part}": f"attn.{part}_proj" for part in "qkv"},
            "attn_norm": "ln_1",
            "proj": "attn.out_proj",
            "up.up": "mlp.fc_in",
            "down": "mlp.fc_out",
        },
        {"embedding.table": "transformer.wte", "final_norm": "transformer.ln_f", "logits": "lm_head"},
        {},
    ),
    "qwen2_moe": _llama(
        {
            "router.shared_gate": "mlp.shared_expert_gate",
            "shared_gate_up.gate": "mlp.shared_expert.gate_proj",
            "shared_gate_up.up": "mlp.shared_expert.up_proj",
            "shared_down": "mlp.shared_expert.down_proj",
        }
    ),
    "gpt_oss": replace(
        _llama(
            {
                "router": "mlp.router",
                **dict.fromkeys(_EXPERTS[:2], "mlp.experts.gate_up_proj"),
                "expert_down": "mlp.experts.down_proj",
            },
            dict.fromkeys(_EXPERTS, "experts_in_turn"),
        ),
        also={},
    ),
    "phi3": _llama({**_PHI3_QKV[0], **_GATE_UP[0]}, {**_PHI3_QKV[1], **_GATE_UP[1]}),
    "gpt2": Names(
        "transformer.h.{}.",
        {
            **_GPT2_QKV[0],
            "attn_norm": "ln_1",
            "mlp_norm": "ln_2",
            "proj": "attn.c_proj",
            "up.up": "mlp.c_fc",
            "down": "mlp.c_proj",
        },
        {
            "embedding.table": "transformer.wte",
            "embedding.positions": "transformer.wpe",
            "final_norm": "transformer.ln_f",
            "logits": "lm_head",
        },
        {**_GPT2_QKV[1], "proj": "transposed", "up.up": "transposed", "down": "transposed"},
    ),
    "gpt_neox": Names(
        "gpt_neox.layers.{}.",
        {**_BLOOM_INSIDE, **_NEOX_QKV[0], "proj": "attention.dense"},
        {
            "embedding.table": "gpt_neox.embed_in",
            "final_norm": "gpt_neox.final_layer_norm",
            "logits": "embed_out",
        },
        _NEOX_QKV[1],
        {"logits": (("lm_head", "plain"),)},
    ),
    "bloom": Names("transformer.h.{}.", {**_BLOOM_INSIDE, **_BLOOM_QKV[0]}, _BLOOM_OUTSIDE, _BLOOM_QKV[1]),
    "falcon": Names(
        "transformer.h.{}.",
        {**_BLOOM_INSIDE, **_FALCON_QKV[0]},
        _BLOOM_OUTSIDE,
        _FALCON_QKV[1],
        variants=(Variant({"attn_norm": "ln_attn", "mlp_norm": "ln_mlp"}, has="mlp_norm", parallel=True),),
    ),
    "opt": Names(
        "model.decoder.layers.{}.",
        {
            **{f"qkv.{part}": f"self_attn.{part}_proj" for part in "qkv"},
            "attn_norm": "self_attn_layer_norm",
            "mlp_norm": "final_layer_norm",
            "proj": "self_attn.out_proj",
            "up.up": "fc1",
            "down": "fc2",
        },
        {
            "embedding.table": "model.decoder.embed_tokens",
            "embedding.positions": "model.decoder.embed_positions",
            "final_norm": "model.decoder.final_layer_norm",
            "logits": "lm_head",
        },
        {},
    ),
    "bert": Names(
        "bert.encoder.layer.{}.",
        {
            "qkv.q": "attention.self.query",
            "qkv.k": "attention.self.key",
            "qkv.v": "attention.self.value",
            "proj": "attention.output.dense",
            "attn_norm": "attention.output.LayerNorm",
            "up.up": "intermediate.dense",
            "down": "output.dense",
            "mlp_norm": "output.LayerNorm",
        },
        {
            "embedding.table": "bert.embeddings.word_embeddings",
            "embedding.positions": "bert.embeddings.position_embeddings",
            "embedding.types": "bert.embeddings.token_type_embeddings",
            "embedding_norm": "bert.embeddings.LayerNorm",
            "transform": "cls.predictions.transform.dense",
            "transform_norm": "cls.predictions.transform.LayerNorm",
            "logits.bias": "cls.predictions",
        },
        {},
    ),
}
"""Families whose names are known here."""
