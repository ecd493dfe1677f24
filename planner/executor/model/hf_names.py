"""Which tensor of a transformers state dict (version 5) each parameter is, and how it is cut from a fused one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cost_models.errors import BadInput
from cost_models.operators import Linear
from cost_models.specs.model import ModelSpec, Role

Layout = Literal[
    "plain", "transposed", "concat", "concat_transposed", "by_head", "experts", "experts_in_turn"
]
"""How parts lie in the source: alone, (in, out), after each other by rows or columns, head by head, after each other
per expert, or in turn per expert as (in, out)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a parameter comes from: the key, the layout, which of `sizes` it is, how many heads interleave."""

    key: str
    layout: Layout = "plain"
    index: int = 0
    sizes: tuple[int, ...] = ()
    heads: int = 0

    def cut(self, tensor: Tensor) -> Tensor:
        """The parameter's own elements of the source tensor."""
        if self.layout in ("transposed", "concat_transposed"):
            tensor = tensor.T
        if self.layout == "experts_in_turn":
            rows = tensor.transpose(1, 2) if tensor.dim() == 3 else tensor
            return rows[:, self.index :: len(self.sizes)] if self.sizes else rows
        if self.layout == "by_head":
            sizes = [size // self.heads for size in self.sizes]
            by_head = tensor.reshape(self.heads, sum(sizes), *tensor.shape[1:])
            return torch.split_with_sizes(by_head, sizes, 1)[self.index].reshape(-1, *tensor.shape[1:])
        if self.layout in ("concat", "concat_transposed", "experts") and self.sizes:
            dim = 1 if self.layout == "experts" else 0
            return torch.split_with_sizes(tensor, list(self.sizes), dim)[self.index]
        return tensor


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
            "llama",
            "mistral",
            "qwen2",
            "qwen3",
            "qwen3_moe",
            "mixtral",
            "glm4_moe",
            "olmoe",
            "smollm3",
        )
    },
    **{family: _llama(_SANDWICH) for family in ("gemma2", "gemma3_text", "olmo2")},
    "starcoder2": _llama({"up.up": "mlp.c_fc", "down": "mlp.c_proj"}),
    "deepseek_v3": _llama(_LATENT, dict.fromkeys(("kv_up.k_nope", "kv_up.v"), "by_head")),
    "qwen2_moe": _llama(
        {
            "router.shared_gate": "mlp.shared_expert_gate",
            "shared_gate_up.gate": "mlp.shared_expert.gate_proj",
            "shared_gate_up.up": "mlp.shared_expert.up_proj",
            "shared_down": "mlp.shared_expert.down_proj",
        }
    ),
    "gpt_oss": _llama({"router": "mlp.router"}, dict.fromkeys(_EXPERTS, "experts_in_turn")),
    "phi3": _llama(
        {**_PHI3_QKV[0], "gate_up.gate": "mlp.gate_up_proj", "gate_up.up": "mlp.gate_up_proj"},
        {**_PHI3_QKV[1], "gate_up.gate": "concat", "gate_up.up": "concat"},
    ),
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


def hf_sources(model: ModelSpec, names: Iterable[str]) -> dict[str, Source]:
    """The source of each named parameter, with the tied table under its first name only."""
    family = FAMILIES.get(model.family)
    if family is None:
        raise BadInput(
            f"weights of {model.family} have no known names; use one of {', '.join(sorted(FAMILIES))}"
        )
    first = next(i for i, layer in enumerate(_layers(model)) if layer[1] is Role.BLOCK)
    return {name: _source(model, family, name, first) for name in names}


def _layers(model: ModelSpec) -> list[tuple[str, Role]]:
    return [(layer.kind, layer.role) for layer in model.layers for _ in range(layer.count)]


def _source(model: ModelSpec, family: Names, name: str, first: int) -> Source:
    _, index, operator, parameter = name.split(".")
    kind, role = _layers(model)[int(index)]
    inside = role is Role.BLOCK
    table = family.inside if inside else family.outside
    key, suffix = _key(operator, parameter, table)
    prefix = family.block.format(int(index) - first) if inside else ""
    whole = key.startswith("expert") or parameter == "sinks"
    end = f".{suffix}" if not whole else "_bias" if suffix == "bias" else ""
    full = prefix + table[key] + end
    layout = family.layouts.get(key, "plain")
    if suffix == "bias" and layout == "transposed":
        return Source(full)
    sizes, index_of = _parts(model, kind, operator, key)
    if suffix == "bias" and layout == "concat_transposed":
        layout = "concat"
    return Source(full, layout, index_of, sizes, model.num_attention_heads)


def _key(operator: str, parameter: str, table: Mapping[str, str]) -> tuple[str, str]:
    """The table's entry for a parameter, and whether it is the weight or the bias."""
    part, suffix = (
        (parameter.removesuffix("_bias"), "bias") if parameter.endswith("bias") else (parameter, "weight")
    )
    for key in (f"{operator}.{parameter}", f"{operator}.{part}", operator):
        if key in table:
            return key, suffix
    raise BadInput(f"parameter {operator}.{parameter} has no known name in the family's weights")


def _parts(model: ModelSpec, kind: str, operator: str, key: str) -> tuple[tuple[int, ...], int]:
    """Features of all parts of a fused linear, and which one the key is."""
    found = next(op for op in model.kinds[kind].operators if op.name == operator)
    part = key.partition(".")[2]
    if isinstance(found, Linear) and len(found.parts) > 1:
        return tuple(each.features for each in found.parts), [each.name for each in found.parts].index(part)
    if found.family == "grouped_linear" and part in ("gate", "up"):
        return (found.out_features // 2,) * 2, ("gate", "up").index(part)
    return (), 0
