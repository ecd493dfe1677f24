"""Names of parameters in transformers state dicts (version 5), family by family."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Layout = Literal[
    "plain", "transposed", "concat", "concat_transposed", "by_head", "experts", "experts_in_turn"
]
"""How parts lie in the source: alone, (in, out), after each other by rows or columns, head by head, after each other
per expert, or in turn per expert as (in, out)."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one family: before a block's own, inside blocks, outside them, and which are not plain."""

    block: str
    inside: Mapping[str, str]
    outside: Mapping[str, str]
    layouts: Mapping[str, Layout]


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
    "expert_gate_up.gate": "mlp.experts.gate_up_proj",
    "expert_gate_up.up": "mlp.experts.gate_up_proj",
    "expert_down": "mlp.experts.down_proj",
    "shared_gate_up.gate": "mlp.shared_experts.gate_proj",
    "shared_gate_up.up": "mlp.shared_experts.up_proj",
    "shared_down": "mlp.shared_experts.down_proj",
}
_LLAMA_OUTSIDE = {"embedding.table": "model.embed_tokens", "final_norm": "model.norm", "logits": "lm_head"}
_EXPERTS: Mapping[str, Layout] = {
    "expert_gate_up.gate": "experts",
    "expert_gate_up.up": "experts",
    "expert_down": "experts",
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
    return Names("model.layers.{}.", inside, _LLAMA_OUTSIDE, {**_EXPERTS, **(layouts or {})})


def _fused(name: str, *, qkv: Layout) -> tuple[dict[str, str], dict[str, Layout]]:
    """Queries, keys and values in one tensor."""
    return dict.fromkeys(_FUSED_QKV, name), dict.fromkeys(_FUSED_QKV, qkv)


_GPT2_QKV = _fused("attn.c_attn", qkv="concat_transposed")
_NEOX_QKV = _fused("attention.query_key_value", qkv="by_head")
_BLOOM_QKV = _fused("self_attention.query_key_value", qkv="by_head")
_FALCON_QKV = _fused("self_attention.query_key_value", qkv="concat")
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
            "minimax_m2",
            "mistral",
            "mixtral",
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
    "starcoder2": _llama({"up.up": "mlp.c_fc", "down": "mlp.c_proj"}),
    **{
        family: _llama(_LATENT, dict.fromkeys(("kv_up.k_nope", "kv_up.v"), "by_head"))
        for family in ("deepseek_v2", "deepseek_v3")
    },
    "glm": _llama(*_GATE_UP),
    "phi": replace(
        _llama({"proj": "self_attn.dense", "up.up": "mlp.fc1", "down": "mlp.fc2"}),
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
    "gpt_oss": _llama({"router": "mlp.router"}, dict.fromkeys(_EXPERTS, "experts_in_turn")),
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
        },
        {**_GPT2_QKV[1], "proj": "transposed", "up.up": "transposed", "down": "transposed"},
    ),
    "gpt_neox": Names(
        "gpt_neox.layers.{}.",
        {**_BLOOM_INSIDE, **_NEOX_QKV[0], "proj": "attention.dense"},
        {
            "embedding.table": "gpt_neox.embed_in",
            "final_norm": "gpt_neox.final_layer_norm",
            "logits": "lm_head",
        },
        _NEOX_QKV[1],
    ),
    "bloom": Names("transformer.h.{}.", {**_BLOOM_INSIDE, **_BLOOM_QKV[0]}, _BLOOM_OUTSIDE, _BLOOM_QKV[1]),
    "falcon": Names("transformer.h.{}.", {**_BLOOM_INSIDE, **_FALCON_QKV[0]}, _BLOOM_OUTSIDE, _FALCON_QKV[1]),
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
