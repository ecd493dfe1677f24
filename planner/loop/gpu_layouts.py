"""Layouts of one GPU: recompute and micro-batches of a dense 1B model, and of a dense 8B model, a mixture of experts
and one with latent attention, cut so that fp32 states of AdamW fit beside activations in 80 GB."""

from collections.abc import Mapping
from typing import Final

from cost_models.profiles import model_config
from planner.loop.cases import Layout, LoopModel

LLAMA_1B: Final = "llama-3.2-1b"
LLAMA_8B: Final = "llama-3.1-8b"
EXPERTS: Final = "olmoe-1b-7b"
LATENT: Final = "deepseek-v2-lite"

KEPT_LAYERS: Final[Mapping[str, int]] = {LLAMA_8B: 8, EXPERTS: 4, LATENT: 4}
"""Blocks that larger models are cut to."""

SMALL: Final[Mapping[str, object]] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
}
SMALL_OF: Final[Mapping[str, Mapping[str, object]]] = {
    LLAMA_1B: {"num_hidden_layers": 8},
    LLAMA_8B: {},
    EXPERTS: {"num_experts": 4, "num_experts_per_tok": 2},
    LATENT: {
        "head_dim": None,
        "num_key_value_heads": 4,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    },
}
SMALL_SEQ_LEN: Final = 64
GROUPS: Final[Mapping[str, str]] = {
    LLAMA_1B: "dense",
    LLAMA_8B: "dense",
    EXPERTS: "experts",
    LATENT: "latent",
}
BATCH: Final = 8

_CASES: Final[tuple[tuple[str, str, int], ...]] = (
    (LLAMA_1B, "mbs=1", 2048),
    (LLAMA_1B, "mbs=2", 2048),
    (LLAMA_1B, "mbs=4", 2048),
    (LLAMA_1B, "mbs=4,recompute=full", 2048),
    (LLAMA_1B, "mbs=4,recompute=full:8", 2048),
    (LLAMA_1B, "mbs=4,recompute=selective:mlp", 2048),
    (LLAMA_1B, "mbs=1,recompute=full", 8192),
    (LLAMA_8B, "mbs=1", 2048),
    (LLAMA_8B, "mbs=2,recompute=full", 2048),
    (LLAMA_8B, "mbs=1,recompute=full:4", 4096),
    (EXPERTS, "mbs=1", 2048),
    (EXPERTS, "mbs=2,recompute=full", 2048),
    (LATENT, "mbs=1", 2048),
    (LATENT, "mbs=2,recompute=full", 2048),
)


def gpu_layouts() -> tuple[Layout, ...]:
    """Layouts of one GPU; models are read from the catalog."""
    return tuple(
        Layout(strategy, 1, "torch", BATCH, GROUPS[name], _model(name, seq_len))
        for name, strategy, seq_len in _CASES
    )


def _model(name: str, seq_len: int) -> LoopModel:
    config: dict[str, object] = dict(model_config(name))
    shown = f"{name} s{seq_len}"
    if name in KEPT_LAYERS:
        config["num_hidden_layers"] = KEPT_LAYERS[name]
        shown += f" cut to {KEPT_LAYERS[name]} layers"
    return LoopModel(shown, config, seq_len, {**SMALL, **SMALL_OF[name]}, SMALL_SEQ_LEN)
