"""Published architecture -> ModelSpec: decoders as layers files, the rest as configs of their families."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from cost_models.operators import CrossEntropy, LmHead
from cost_models.profiles import list_models, model_config
from cost_models.readers import read_model
from cost_models.specs.model import ModelSpec
from planner.validation.rows import Run, Unusable

CATALOG_NAMES: Final = {"resnet50-v1.5": "resnet-50", "bert-large": "bert-large"}
"""Published names whose architecture is in the catalog under another one."""

MASKED: Final = ("bert-large",)
MASKED_SHARE: Final = 20 / 128
"""Positions that BERT's published programs predict of each sequence: 20 of 128, 80 of 512 (max_predictions_per_seq)."""

QUERY_KEY_NORMS: Final = ("qwen3",)
"""Families that normalise queries and keys (Qwen3 technical report, section 2)."""

Shape = dict[str, object]


def model_of(run: Run) -> ModelSpec:
    """The model of a run; raises Unusable where the source does not restate its architecture."""
    raw = dict(run.model_file())
    name = str(raw.get("name", run.text("model")))
    known = CATALOG_NAMES.get(name, name)
    if known in list_models() and (name in CATALOG_NAMES or raw.get("kind") in ("cnn", "hybrid")):
        model = read_model(model_config(known), name=name)
        return _with_masked_head(model) if known in MASKED else model
    if not isinstance(raw.get("hidden_size"), int):
        raise Unusable(f"the architecture of {name} is not restated in its source")
    length = run.whole("seq_len", 2048)
    positions = length if _learns_positions(raw, run) else 0
    return _read(json.dumps(raw, sort_keys=True), name, positions, _drops_out(raw, run))


def _with_masked_head(model: ModelSpec) -> ModelSpec:
    """The model with logits of its masked positions alone."""
    kinds = dict(model.kinds)
    for name, kind in model.kinds.items():
        operators = tuple(
            op.model_copy(update={"predicted": MASKED_SHARE}) if isinstance(op, LmHead | CrossEntropy) else op
            for op in kind.operators
        )
        kinds[name] = kind.model_copy(update={"operators": operators})
    return model.model_copy(update={"kinds": kinds})


@lru_cache(maxsize=256)
def _read(text: str, name: str, positions: int, dropout: bool) -> ModelSpec:
    raw = json.loads(text)
    if raw.get("hybrid_pattern"):
        return read_model(_hybrid_config(raw), name=name)
    if raw.get("attention_kind") == "mla":
        return read_model(_latent_config(raw), name=name)
    return read_model(_layers_file(raw, positions, dropout), name=name)


def _learns_positions(raw: Mapping[str, object], run: Run) -> bool:
    """GPT-2 and GPT-3 style models, and those whose source says so."""
    notes = str(raw.get("arch_notes", ""))
    plain = not raw.get("gated_mlp") and not notes
    return "learned position" in notes or (plain and run.text("attention_kind", "mha") == "mha")


def _drops_out(raw: Mapping[str, object], run: Run) -> bool:
    """GPT-2 and GPT-3 style models, Megatron-Core's tests of ungated ones (--hidden-dropout is 0.1 by default), and
    those that their source says drop out."""
    notes = str(raw.get("arch_notes", ""))
    plain = not raw.get("gated_mlp") and (not notes or "Megatron-Core CI" in run.text("framework"))
    return plain or "dropout" in notes


def _layers_file(raw: Mapping[str, object], positions: int, dropout: bool) -> Shape:
    """Dense and plain MoE decoders. Ungated models use LayerNorm, gated ones RMSNorm."""
    notes, gated = str(raw.get("arch_notes", "")), bool(raw.get("gated_mlp"))
    gpt = not gated and not notes
    biases = gpt or ("biases" in notes and "no bias" not in notes)
    attention = _attention(raw, biases, dropout=dropout, positions=positions)
    width = {"width": raw["intermediate_size"], "gated": gated, "function": "silu" if gated else "gelu"}
    dense: Shape = {"attention": attention, "mlp": {**width, "bias": biases}}
    return {
        "layers_file": 1,
        "hidden_size": raw["hidden_size"],
        "vocab_size": raw["vocab_size"],
        "norm": "rms" if gated else "layer",
        "dropout": dropout,
        "tied_embeddings": bool(raw.get("tie_word_embeddings")),
        "positions": positions,
        "layers": _blocks(raw, dense, biases),
    }


def _attention(raw: Mapping[str, object], biases: bool, dropout: bool, positions: int) -> Shape:
    notes, name = str(raw.get("arch_notes", "")), str(raw.get("name", ""))
    return {
        "heads": raw["num_attention_heads"],
        "kv_heads": raw.get("num_key_value_heads") or 0,
        "head_dim": raw["head_dim"],
        "qkv_bias": biases,
        "out_bias": biases,
        "rope": "alibi" not in notes and not positions,
        "qk_norm": name.startswith(QUERY_KEY_NORMS),
        "dropout": dropout,
    }


def _blocks(raw: Mapping[str, object], dense: Shape, biases: bool) -> list[Shape]:
    """Dense layers first, then routed ones; a sliding window on every second layer where the source says so."""
    layers = _int(raw, "num_hidden_layers")
    if not raw.get("num_experts"):
        return [{"kind": "dense", "count": layers, **dense}]
    moe: Shape = {
        "experts": raw["num_experts"],
        "top_k": raw["num_experts_per_tok"],
        "width": raw["moe_intermediate_size"],
        "gated": bool(raw.get("gated_mlp")),
        "shared_width": _int(raw, "n_shared_experts", 0) * _int(raw, "moe_intermediate_size"),
        "bias": biases,
    }
    first = _int(raw, "first_k_dense_replace", 0)
    blocks: list[Shape] = [{"kind": "dense", "count": first, **dense}] if first else []
    routed: Shape = {"kind": "moe", "attention": dense["attention"], "moe": moe}
    if "sliding window 128 on alternate layers" not in str(raw.get("arch_notes", "")):
        return [*blocks, {**routed, "count": layers - first}]
    attention = dict(_mapping(dense["attention"]))
    window: Shape = {"kind": "window", "attention": {**attention, "window": 128}, "moe": moe}
    return [*blocks, *([window, routed] * ((layers - first) // 2))]


def _latent_config(raw: Mapping[str, object]) -> Shape:
    """A latent-attention model as a DeepSeek-V3 config; expert groups cost nothing, so there is one."""
    keys = (
        *(
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "intermediate_size",
        ),
        *(
            "vocab_size",
            "moe_intermediate_size",
            "num_experts_per_tok",
            "n_shared_experts",
            "first_k_dense_replace",
        ),
        *(
            "q_lora_rank",
            "kv_lora_rank",
            "qk_nope_head_dim",
            "qk_rope_head_dim",
            "v_head_dim",
            "tie_word_embeddings",
        ),
        "num_nextn_predict_layers",
    )
    config = {key: raw[key] for key in keys if key in raw}
    experts = {"n_routed_experts": raw["num_experts"], "n_group": 1, "topk_group": 1}
    return {"model_type": "deepseek_v3", **config, **experts}


def _hybrid_config(raw: Mapping[str, object]) -> Shape:
    """A Mamba hybrid as a Nemotron-H config."""
    same = (
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *(
            "intermediate_size",
            "vocab_size",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "mamba_head_dim",
        ),
        *("mamba_num_heads", "tie_word_embeddings"),
    )
    renamed = {
        "hybrid_override_pattern": "hybrid_pattern",
        "ssm_state_size": "mamba_state_dim",
        "n_groups": "mamba_num_groups",
        "n_routed_experts": "num_experts",
        "moe_shared_expert_intermediate_size": "shared_expert_ffn_hidden",
    }
    config: Shape = {key: raw[key] for key in same if key in raw}
    config |= {key: raw[old] for key, old in renamed.items() if old in raw}
    return {"model_type": "nemotron_h", **config}


def _int(raw: Mapping[str, object], key: str, default: int | None = None) -> int:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unusable(f"the architecture states no whole number for {key}")
    return value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
