"""Decoders with routed experts: what each kind of layer holds, by hand, and what contradicts itself."""

from pathlib import Path

import pytest

from cost_models.errors import InvalidModel
from cost_models.readers import load_model, read_model
from cost_models.specs.counts import count_parameters, layer_parameters
from cost_models.specs.model import Role


def test_minimax_layers_in_turn():
    model = read_model({"model_type": "minimax"})
    kinds = {kind: layer_parameters(each) for kind, each in model.kinds.items()}
    # Lightning: q, k, v, gate and output of 4096 x 4096 and a norm of 4096; full: q and output, k and v of 1024.
    assert kinds["moe_linear"] - kinds["moe_full"] == 5 * 4096**2 + 4096 - (2 * 4096**2 + 2 * 4096 * 1024)
    # 8 experts of 3 x 4096 x 14336, their router, two norms, full attention
    assert kinds["moe_full"] == 8 * 3 * 4096 * 14336 + 8 * 4096 + 2 * 4096 + 2 * 4096**2 + 2 * 4096 * 1024
    assert [layer.kind for layer in model.layers][1:3] == ["moe_full", "moe_linear"]


def test_granite_without_its_shared_expert_is_granitemoe():
    plain, shared = read_model({"model_type": "granitemoe"}), read_model({"model_type": "granitemoeshared"})
    assert count_parameters(plain) == count_parameters(shared)


def test_deepseek_v32_is_v3_with_an_indexer_in_every_layer():
    v3, v32 = read_model({"model_type": "deepseek_v3"}), read_model({"model_type": "deepseek_v32"})
    # queries 1536 -> 64 x 128, one key head and its LayerNorm, 64 weights
    indexer = 1536 * 64 * 128 + 7168 * 128 + 2 * 128 + 7168 * 64
    assert count_parameters(v32).parameters - count_parameters(v3).parameters == 61 * indexer


def test_layers_that_share_an_indexer_are_a_kind_of_their_own():
    config = {"model_type": "glm_moe_dsa", "num_hidden_layers": 8, "index_topk_freq": 4}
    model = read_model(config)
    order = [layer.kind for layer in model.layers if layer.role is Role.BLOCK for _ in range(layer.count)]
    # from offset 2 on every fourth layer chooses: layers 0, 1 and 5
    assert order == ["dense", "dense", "dense_shared", *["moe_shared"] * 2, "moe", *["moe_shared"] * 2]
    indexer = 2048 * 32 * 128 + 6144 * 128 + 2 * 128 + 6144 * 32
    sizes = {kind: layer_parameters(each) for kind, each in model.kinds.items()}
    assert sizes["moe"] - sizes["moe_shared"] == indexer
    pattern = read_model({"model_type": "glm_moe_dsa", "num_hidden_layers": 4, "index_topk_pattern": "FFSF"})
    assert [layer.kind for layer in pattern.layers if layer.role is Role.BLOCK] == [
        "dense",
        "dense_shared",
        "moe",
    ]


def test_hunyuan_layers():
    dense, routed = {"model_type": "hunyuan_v1_dense"}, {"model_type": "hunyuan_v1_moe", "num_experts": 4}
    # four linears of 4096 x 4096, q/k norms of 128, two norms
    attention = 4 * 4096**2 + 2 * 128 + 2 * 4096
    width = 3 * 4096 * 11008
    assert layer_parameters(read_model(dense).kinds["dense"]) == attention + width
    # four experts, a shared one, the router
    assert layer_parameters(read_model(routed).kinds["moe"]) == attention + 5 * width + 4 * 4096
    assert read_model({**routed, "moe_topk": [2] * 32}).num_experts_per_token == 2


def test_mimo_is_qwen2_with_a_prediction_layer():
    config = {
        "model_type": "mimo",
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 11008,
        "vocab_size": 151680,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
    }
    counts = count_parameters(read_model(config))
    qwen = {**config, "model_type": "qwen2"}
    assert counts.parameters == count_parameters(read_model(qwen)).parameters == 7_622_619_136
    block = layer_parameters(read_model(config).kinds["dense"])
    # a whole block, norms of both inputs and of the output, the linear that joins the inputs
    assert counts.mtp == block + 3 * 4096 + 2 * 4096**2


def test_sarvam_moe_is_glm_4_5_with_query_and_key_norms():
    model = read_model({"model_type": "sarvam_moe"})
    # q and output 4096 x 4096, k and v 4096 x 256, q/k norms of 64, two norms
    attention = 2 * 4096**2 + 2 * 4096 * 256 + 2 * 64 + 2 * 4096
    assert layer_parameters(model.kinds["dense"]) == attention + 3 * 4096 * 8192
    assert layer_parameters(model.kinds["moe"]) == attention + 129 * 3 * 4096 * 1024 + 128 * 4096


def test_switch_transformers_layers():
    model = read_model({"model_type": "switch_transformers"})
    stacks = {"encoder": [], "decoder": []}
    for layer in model.layers:
        if layer.role is Role.BLOCK:
            stacks[layer.stack] += [layer.kind] * layer.count
    # every fourth layer of twelve, the second of each four
    assert ["moe" in kind for kind in stacks["decoder"]] == 3 * [False, True, False, False]
    sizes = {kind: layer_parameters(each) for kind, each in model.kinds.items()}
    attention, width = 4 * 768**2, 2 * 768 * 2048
    assert sizes["encoder"] == attention + width + 2 * 768
    assert sizes["encoder_first"] == sizes["encoder"] + 32 * 12
    assert sizes["encoder_moe"] == attention + 8 * width + 8 * 768 + 2 * 768
    assert sizes["decoder_moe"] == sizes["encoder_moe"] + attention + 768
    table = 32128 * 768
    blocks = 9 * (sizes["encoder"] + sizes["decoder"]) + 3 * (sizes["encoder_moe"] + sizes["decoder_moe"])
    assert count_parameters(model).parameters == table + blocks + 2 * 32 * 12 + 2 * 768


def test_grok_1_as_a_layers_file():
    docs = Path(__file__).parents[3] / "docs"
    model = load_model(str(docs / "examples" / "grok-1.json"))
    # q and output 6144^2, k and v 6144 x 1024, 8 experts of 3 x 6144 x 32768, router, four norms
    block = 2 * 6144**2 + 2 * 6144 * 1024 + 8 * 3 * 6144 * 32768 + 8 * 6144 + 4 * 6144
    counts = count_parameters(model)
    assert counts.parameters == 64 * block + 131072 * 6144 + 6144
    assert counts.active == counts.parameters - 64 * 6 * 3 * 6144 * 32768


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "gpt_oss", "num_experts_per_tok": 200}, "num_experts_per_tok"),
        ({"model_type": "gpt_oss", "num_local_experts": 32, "num_experts": 64}, "num_experts"),
        ({"model_type": "glm4_moe", "first_k_dense_replace": 99}, "first_k_dense_replace"),
        ({"model_type": "dbrx", "attn_config": {"kv_n_heads": 3}}, "n_heads"),
        ({"model_type": "dbrx", "tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"model_type": "dbrx", "ffn_config": 3}, "ffn_config"),
        ({"model_type": "olmoe", "head_dim": 64}, "head_dim"),
        ({"model_type": "hunyuan_v1_moe", "moe_intermediate_size": [1, 1]}, "moe_intermediate_size"),
        ({"model_type": "hunyuan_v1_moe", "moe_topk": [1, 2]}, "moe_topk"),
        ({"model_type": "mimo_v2_flash", "swa_num_key_value_heads": 16}, "num_key_value_heads"),
        ({"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern"),
        ({"model_type": "laguna", "num_attention_heads_per_layer": [48]}, "num_attention_heads_per_layer"),
        ({"model_type": "granitemoe_swa", "layer_rope_theta": [0.0]}, "layer_rope_theta"),
        ({"model_type": "llama4_text", "no_rope_layers": [1, 0]}, "no_rope_layers"),
        ({"model_type": "qwen3_next", "linear_num_value_heads": 24}, "linear_num_value_heads"),
        ({"model_type": "minimax", "attn_type_list": [0, 1]}, "attn_type_list"),
        ({"model_type": "glm_moe_dsa", "index_topk_pattern": "FSX"}, "index_topk_pattern"),
        ({"model_type": "glm_moe_dsa", "q_lora_rank": None}, "q_lora_rank"),
        (
            {
                "model_type": "glm4_moe_lite",
                "num_hidden_layers": 2,
                "first_k_dense_replace": 2,
                "mlp_layer_types": ["dense", "sparse"],
            },
            "mlp_layer_types",
        ),
    ],
)
def test_contradictions_are_refused_with_the_key(config, key):
    with pytest.raises(InvalidModel) as caught:
        read_model(config)
    assert caught.value.pointer == f"/{key}"
    assert "; " in caught.value.detail
