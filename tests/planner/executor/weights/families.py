"""Tiny models of the families whose weights are taken from files, of four blocks, their heads divided by two ranks."""

from tests.planner.executor.model.configs import BASE, GPT2, LATENT, LLAMA3, MOE, WINDOWED, YARN, Config

_FOUR = {"num_hidden_layers": 4}

DENSE: dict[str, Config] = {
    "llama": BASE | {"model_type": "llama", "rope_parameters": LLAMA3},
    "llama tied": BASE | {"model_type": "llama", "tie_word_embeddings": True, "vocab_size": 67},
    "qwen3": BASE | {"model_type": "qwen3", "head_dim": 16},
    "gpt2": GPT2 | {"n_layer": 4, "vocab_size": 65},
    "gemma": BASE | {"model_type": "gemma", "head_dim": 16},
    "gemma2": BASE | WINDOWED | {"model_type": "gemma2", "query_pre_attn_scalar": 24},
    "gemma3": BASE | WINDOWED | {"model_type": "gemma3_text", "sliding_window_pattern": 2},
}
ROUTED: dict[str, Config] = {
    "mixtral": MOE | {"model_type": "mixtral", "num_local_experts": 4},
    "qwen3 moe": MOE | {"model_type": "qwen3_moe", "num_experts": 4, "norm_topk_prob": True, "head_dim": 8},
    "deepseek v3": LATENT
    | {
        "model_type": "deepseek_v3",
        "n_shared_experts": 1,
        "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0},
    },
}
FAMILIES: dict[str, Config] = {
    name: config | (_FOUR if "n_layer" not in config else {}) for name, config in {**DENSE, **ROUTED}.items()
}
"""By a name for the case."""
