"""Varied small configs of every family, for tests that build them."""

import random
import re

import pytest

from cost_models.readers.huggingface.composites import COMPOSITES

DROP = object()
"""A key to leave out."""

LAYERS = {
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
    "num_decoder_layers", "num_encoder_layers", "depth",
}  # fmt: skip
WIDTHS = {"hidden_size", "n_embd", "d_model", "dim", "embed_dim"}
HEADS = {
    "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
    "decoder_attention_heads", "attention_heads",
}  # fmt: skip
KEY_HEADS = {"num_key_value_heads", "num_kv_heads", "n_head_kv"}
HEAD_SIZES = {"head_dim", "kv_channels", "d_kv"}
EXPERTS = {"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"}
CHOSEN = {
    "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k", "moe_top_k",
}  # fmt: skip
CHOICES = {
    "q_lora_rank": (None, 24, 48),
    "kv_lora_rank": (16, 40),
    "qk_nope_head_dim": (8, 16, 24),
    "v_head_dim": (8, 16, 24),
    "qk_rope_head_dim": (8, 16),
    "first_k_dense_replace": (0, 1, 2),
    "n_shared_experts": (1, 2),
    "num_shared_experts": (1, 2),
    "n_group": (1,),
    "topk_group": (1,),
    "num_expert_group": (1,),
    "decoder_sparse_step": (1, 2),
    "encoder_sparse_step": (1, 2),
    "interleave_moe_layer_step": (1, 2),
    "mlp_only_layers": ([], [0], [1]),
    "max_window_layers": (0, 2, 3),
    "sliding_window": (64, 128),
    "sliding_window_pattern": (2, 3, 4),
    "full_attention_interval": (2, 3, 4),
    "index_n_heads": (2, 4),
    "index_head_dim": (32, 64),
}
INNER = re.compile(r"intermediate_size|ffn_dim|d_ff$|ffn_hidden|n_inner|ffn_size")
FLAGS = re.compile(r"bias|tie_word|qk_norm|layernorm|parallel|new_decoder|multi_query|double_wide|^use_")
KEPT_FLAGS = (
    "use_cache",
    "use_mambapy",
    "use_mem_eff_path",
    "use_bidirectional_attention",
    "use_long_context",
)


def drawn(defaults, draw):
    """Small legal sizes for the keys of a configuration class, some left out, flags and lists varied."""
    heads, size = draw.choice((2, 4, 6, 8)), draw.choice((8, 16, 32, 40))
    layers, experts, chosen = draw.randint(2, 7), draw.choice((4, 8, 16)), draw.choice((1, 2, 3))
    fixed = {
        **dict.fromkeys(LAYERS, layers),
        **dict.fromkeys(WIDTHS, heads * size * draw.choice((1, 1, 2))),
        **dict.fromkeys(HEADS, heads),
        **dict.fromkeys(KEY_HEADS, draw.choice([each for each in (1, 2, 3, 4, heads) if heads % each == 0])),
        **dict.fromkeys(EXPERTS, experts),
        **dict.fromkeys(CHOSEN, chosen),
    }
    found = {}
    for key, value in defaults.items():
        if key in fixed and not isinstance(value, bool | list | tuple | dict | str):
            found[key] = fixed[key]
        elif key in HEAD_SIZES and draw.random() < 0.5:
            found[key] = draw.choice((size, 16, 24, 32))
        elif key == "vocab_size" and isinstance(value, int):
            found[key] = value + draw.choice((0, 1, 64))
        elif key in CHOICES and draw.random() < 0.9:
            found[key] = draw.choice(CHOICES[key])
        elif INNER.search(key) and not isinstance(value, bool | list | str):
            found[key] = draw.choice((32, 48, 64, 96))
        elif isinstance(value, bool) and FLAGS.search(key) and key not in KEPT_FLAGS and draw.random() < 0.35:
            found[key] = not value
        elif key in ("layer_types", "mlp_layer_types") and value and draw.random() < 0.4:
            found[key] = [draw.choice(sorted(set(value))) for _ in range(layers)]
    if "mlp_layer_types" in found:
        found.pop("first_k_dense_replace", None)
    return found


def period(draw, name, periods=(2, 3, 4)):
    every = draw.choice(periods)
    return {f"{name}_period": every, f"{name}_offset": draw.randrange(every)}


def state_space(config, draw):
    heads = draw.choice((2, 4, 8))
    sizes = {"mamba_d_head": config["hidden_size"] * 2 // heads, "mamba_d_state": draw.choice((16, 64))}
    return {"mamba_n_heads": heads, "mamba_expand": 2, "mamba_n_groups": draw.choice((1, 2)), **sizes}


def kinds(draw, count, *names):
    return [draw.choice(names) for _ in range(count)]


def hybrid(config, draw):
    layers = draw.choice((6, 8, 9))
    order = kinds(draw, layers - 2, "hybrid", "mamba")
    return {
        "num_hidden_layers": layers,
        "layers_block_type": ["mamba", *order, "hybrid"],
        "num_mem_blocks": draw.choice((1, 2)),
        "n_mamba_heads": draw.choice((2, 4)),
        "num_key_value_heads": config["num_attention_heads"],
        "mamba_d_state": 16,
        "adapter_rank": 8,
        "attention_head_dim": DROP,
        "kv_channels": DROP,
    }


def stages(config, draw):
    heads, count = draw.choice((1, 2, 3)), draw.choice((3, 4))
    return {
        "embed_dim": heads * draw.choice((16, 32)),
        "num_heads": [heads * 2**stage for stage in range(count)],
        "depths": kinds(draw, count, 1, 2, 3),
        "window_size": draw.choice((4, 7)),
        "hidden_size": DROP,
        "num_layers": DROP,
    }


def v4(config, draw):
    layers = config["num_hidden_layers"]
    names = ("sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention")
    sizes = {"num_key_value_heads": 1, "q_lora_rank": 24, "o_groups": 2, "o_lora_rank": 16, "hc_mult": 2}
    types = {"layer_types": kinds(draw, layers, *names), "mlp_layer_types": DROP, "num_hash_layers": 1}
    return {**sizes, **types, "head_dim": 32, "n_shared_experts": 1, "first_k_dense_replace": DROP}


def whole_heads(config, draw):
    return {"head_dim": config["hidden_size"] // config["num_attention_heads"]}


def multi_head(config, draw):
    return {"num_key_value_heads": config["num_attention_heads"], "q_lora_rank": 24}


def window_twice(config, draw):
    keys = draw.choice((1, 2, 4))
    return {"num_attention_heads": 8, "num_key_value_heads": keys, "swa_num_key_value_heads": 2 * keys}


SPECIAL = {
    "axk2": multi_head,
    "bailing_hybrid": lambda config, draw: {
        **multi_head(config, draw),
        "layer_group_size": 2,
        "tie_word_embeddings": False,
        "num_shared_experts": DROP,
        "num_experts": DROP,
        "num_experts_per_token": DROP,
        "num_experts_per_tok": 2,
    },
    "bamba": lambda config, draw: {**state_space(config, draw), "attn_layer_indices": [1]},
    "cohere2": lambda config, draw: {"head_dim": DROP},
    "dbrx": lambda config, draw: {
        "attn_config": {"kv_n_heads": draw.choice((1, 2)), "clip_qkv": 8, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": draw.choice((4, 8)), "moe_top_k": 2},
        "tie_word_embeddings": False,
    },
    "deepseek_v32": lambda config, draw: {"q_lora_rank": 24, "first_k_dense_replace": 1},
    "deepseek_v4": v4,
    "dots1": lambda config, draw: {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2},
    "falcon_h1": lambda config, draw: {
        **state_space(config, draw),
        "mamba_d_ssm": 2 * config["hidden_size"],
        "head_dim": DROP,
    },
    "gemma3n_text": lambda config, draw: {
        "num_hidden_layers": 7,
        "layer_types": DROP,
        "num_kv_shared_layers": draw.choice((0, 1)),
        "intermediate_size": kinds(draw, 7, 32, 64),
        "hidden_size_per_layer_input": 8,
    },
    "glm_moe_dsa": lambda config, draw: {"q_lora_rank": 24, "mlp_layer_types": DROP},
    "gpt_neo": lambda config, draw: {"attention_types": [[["global", "local"], 2]], "num_layers": 4},
    "granitemoehybrid": lambda config, draw: {
        **state_space(config, draw),
        "layer_types": kinds(draw, config["num_hidden_layers"], "mamba", "attention"),
    },
    "helium": whole_heads,
    "hunyuan_v1_dense": whole_heads,
    "hunyuan_v1_moe": whole_heads,
    "hy_v4": lambda config, draw: {
        **multi_head(config, draw),
        "hc_mult": 2,
        "indexer_types": ["full", *kinds(draw, config["num_hidden_layers"] - 1, "full", "shared")],
    },
    "jamba": lambda config, draw: period(draw, "attn_layer") | period(draw, "expert_layer", (1, 2)),
    "kimi_linear": lambda config, draw: {"attention_bias": DROP, "tie_word_embeddings": False},
    "lfm2_moe": lambda config, draw: {
        "layer_types": kinds(draw, config["num_hidden_layers"], "conv", "full_attention")
    },
    "longcat_flash": lambda config, draw: {
        "num_layers": 2,
        "num_hidden_layers": DROP,
        "zero_expert_num": draw.choice((0, 4)),
        "expert_ffn_hidden_size": 32,
        "q_lora_rank": 24,
    },
    "mamba": lambda config, draw: {"intermediate_size": DROP},
    "falcon_mamba": lambda config, draw: {"intermediate_size": DROP},
    "mamba2": lambda config, draw: {"num_heads": 4, "head_dim": config["hidden_size"] // 2, "n_groups": 2},
    "mimo_v2_flash": window_twice,
    "ministral": whole_heads,
    "mpt": lambda config, draw: {
        "no_bias": DROP,
        "expansion_ratio": DROP,
        "learned_pos_emb": DROP,
        "use_cache": DROP,
        "tie_word_embeddings": DROP,
    },
    "swin": stages,
    "swinv2": lambda config, draw: {**stages(config, draw), "pretrained_window_sizes": DROP},
    "vaultgemma": lambda config, draw: {"sliding_window": 64},
    "zamba": lambda config, draw: {
        **period(draw, "attn_layer"),
        "num_hidden_layers": 9,
        "num_key_value_heads": config["num_attention_heads"],
        "attention_head_dim": DROP,
        "use_mamba_kernels": DROP,
    },
    "zamba2": hybrid,
}
"""Sizes of a family that depend on each other."""


def tower(defaults, draw, text_width):
    heads = draw.choice((2, 4))
    sizes = {
        "depth": 3, "num_hidden_layers": 3, "hidden_size": 16 * heads, "embed_dim": 16 * heads,
        "num_heads": heads, "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": 16,
        "intermediate_size": draw.choice((32, 48)), "out_hidden_size": text_width,
        "deepstack_visual_indexes": [0], "fullatt_block_indexes": [1], "model_type": None,
    }  # fmt: skip
    found = {key: sizes[key] for key in defaults if key in sizes}
    return {**found, "model_type": defaults["model_type"]}


def composite(family, defaults, draw):
    text = drawn(defaults["text_config"], draw)
    for key in ("layer_types", "tie_word_embeddings", "num_kv_shared_layers", "top_k_experts", "num_experts"):
        if "gemma" in family or key.endswith(("types", "embeddings")):
            text.pop(key, None)
    text |= {"model_type": defaults["text_config"]["model_type"], "num_hidden_layers": 6}
    found = {"text_config": text}
    if defaults.get("vision_config"):
        found["vision_config"] = tower(defaults["vision_config"], draw, text.get("hidden_size"))
        if family == "qwen2_vl":
            found["vision_config"]["hidden_size"] = text["hidden_size"]
    return found


def configs(family, defaults, count):
    draw = random.Random(family)
    yield {"model_type": family}
    for _ in range(count - 1):
        if family in COMPOSITES:
            yield {"model_type": family, **composite(family, defaults, draw)}
            continue
        found = drawn(defaults, draw)
        special = SPECIAL.get(family, lambda config, draw: {})(found, draw)
        found |= special
        yield {"model_type": family, **{key: value for key, value in found.items() if value is not DROP}}


@pytest.fixture(scope="session")
def varied_configs():
    """(family, its configuration class's defaults, number) -> so many configs, the same ones in every run."""
    return configs
