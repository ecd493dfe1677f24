"""Tiny configs of the families that are compared with the transformers library, by a name for the case."""

from typing import Any

Config = dict[str, Any]

BASE: Config = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
MOE = BASE | {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = MOE | {
    "num_key_value_heads": 8,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
GPT2: Config = {
    "model_type": "gpt2",
    "vocab_size": 64,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
WINDOWED = {"head_dim": 16, "sliding_window": 8}

CASES: dict[str, Config] = {
    "llama": BASE | {"model_type": "llama"},
    "llama 3.1 rope": BASE | {"model_type": "llama", "rope_parameters": LLAMA3},
    "llama yarn": BASE | {"model_type": "llama", "rope_parameters": YARN},
    "llama linear rope": BASE | {"model_type": "llama", "rope_parameters": LINEAR},
    "llama biases": BASE | {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama tied": BASE | {"model_type": "llama", "tie_word_embeddings": True},
    "mistral window": BASE | {"model_type": "mistral", "sliding_window": 8},
    "qwen2": BASE | {"model_type": "qwen2"},
    "qwen3": BASE | {"model_type": "qwen3", "head_dim": 16},
    "gemma2": BASE | WINDOWED | {"model_type": "gemma2", "query_pre_attn_scalar": 24},
    "gemma3": BASE | WINDOWED | {"model_type": "gemma3_text", "sliding_window_pattern": 2},
    "olmo2": BASE | {"model_type": "olmo2"},
    "starcoder2": BASE | {"model_type": "starcoder2"},
    "phi3": BASE | {"model_type": "phi3"},
    "smollm3": BASE | {"model_type": "smollm3", "no_rope_layers": [1, 0]},
    "mixtral": MOE | {"model_type": "mixtral", "num_local_experts": 4},
    "qwen3 moe": MOE | {"model_type": "qwen3_moe", "num_experts": 4, "norm_topk_prob": True},
    "qwen2 moe": MOE | {"model_type": "qwen2_moe", "num_experts": 4, "shared_expert_intermediate_size": 32},
    "olmoe": MOE | {"model_type": "olmoe", "num_experts": 4},
    "glm4 moe": MOE | {"model_type": "glm4_moe", "n_routed_experts": 4, "head_dim": 16},
    "deepseek v3": LATENT | {"model_type": "deepseek_v3"},
    "deepseek v3 yarn": LATENT
    | {"model_type": "deepseek_v3", "rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}},
    "gpt2": GPT2,
    "gpt neox": BASE | {"model_type": "gpt_neox", "rotary_pct": 0.25},
    "gpt neox in sequence": BASE | {"model_type": "gpt_neox", "use_parallel_residual": False},
    "bloom": {"model_type": "bloom", "vocab_size": 64, "hidden_size": 64, "n_layer": 2, "n_head": 4},
    "falcon": {
        "model_type": "falcon",
        "vocab_size": 64,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "opt": BASE | {"model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 64},
    "bert": BASE | {"model_type": "bert"},
    "granite": BASE
    | {
        "model_type": "granite",
        "embedding_multiplier": 3.0,
        "logits_scaling": 2.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.2,
    },
    "cohere": BASE | {"model_type": "cohere", "logit_scale": 4.0},
    "cohere2": BASE
    | {"model_type": "cohere2", "sliding_window": 8, "sliding_window_pattern": 2, "logit_scale": 4.0},
    "gemma": BASE | {"model_type": "gemma", "head_dim": 16},
    "olmo": BASE | {"model_type": "olmo"},
    "olmo3": BASE | {"model_type": "olmo3", "sliding_window": 8},
    "helium": BASE | {"model_type": "helium", "head_dim": 8},
    "ernie": BASE | {"model_type": "ernie4_5", "head_dim": 8},
    "seed oss": BASE | {"model_type": "seed_oss", "head_dim": 8},
    "arcee": BASE | {"model_type": "arcee"},
    "nemotron": BASE | {"model_type": "nemotron"},
    "stablelm": BASE | {"model_type": "stablelm"},
    "glm": BASE | {"model_type": "glm", "head_dim": 8},
    "phi": BASE | {"model_type": "phi"},
    "gptj": {**GPT2, "model_type": "gptj", "rotary_dim": 8},
    "exaone4": BASE
    | {"model_type": "exaone4", "head_dim": 8, "sliding_window": 8, "sliding_window_pattern": 2},
    "ministral": BASE | {"model_type": "ministral", "head_dim": 8, "sliding_window": 8},
    "cwm": BASE | {"model_type": "cwm", "head_dim": 8},
    "minimax m2": MOE | {"model_type": "minimax_m2", "num_local_experts": 4, "head_dim": 8, "rotary_dim": 4},
    "deepseek v2": LATENT | {"model_type": "deepseek_v2", "topk_method": "group_limited_greedy"},
    "gpt oss": MOE | {"model_type": "gpt_oss", "num_local_experts": 4, "head_dim": 16, "sliding_window": 8},
}

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
VARIANTS: dict[str, Config] = {
    "llama beyond its positions": BASE
    | {"model_type": "llama", "max_position_embeddings": 16, "rope_parameters": DYNAMIC},
    "qwen3 layer types": CASES["qwen3"]
    | {
        "use_sliding_window": True,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "qwen3 moe, some dense": CASES["qwen3 moe"] | {"mlp_only_layers": [0]},
    "mixtral tied": CASES["mixtral"] | {"tie_word_embeddings": True, "sliding_window": 8},
    "deepseek v3, plain queries": CASES["deepseek v3"] | {"q_lora_rank": None, "n_shared_experts": 2},
    "deepseek v3, halves": CASES["deepseek v3"] | {"rope_interleave": False, "attention_bias": True},
    "deepseek v2, greedy": CASES["deepseek v2"] | {"topk_method": "greedy"},
    "gpt2 untied": GPT2 | {"tie_word_embeddings": False, "activation_function": "relu"},
    "gemma2 without caps": CASES["gemma2"]
    | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    "falcon groups": CASES["falcon"] | {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon heads": CASES["falcon"] | {"multi_query": False},
    "phi norms": CASES["phi"] | {"qk_layernorm": True},
}
"""Settings in which models of one family differ."""

UNUSUAL: dict[str, tuple[Config, str]] = {
    "gpt2": (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    "gemma3": (CASES["gemma3"] | {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    "olmoe": (CASES["olmoe"] | {"clip_qkv": 0.5}, "clip_qkv"),
    "falcon": (CASES["falcon"] | {"alibi": True}, "alibi"),
    "longrope": (
        CASES["llama"] | {"rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0}},
        "rotary scaling longrope",
    ),
}
"""Settings that are refused, and the words that name them."""

RESNET: Config = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [16, 32],
    "depths": [2, 1],
    "layer_type": "bottleneck",
    "image_size": 32,
    "id2label": {str(i): str(i) for i in range(5)},
}
