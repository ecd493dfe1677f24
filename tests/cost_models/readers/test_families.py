"""What each awkward family must look like: kinds and their order, ties, stacks, multi-token prediction."""

import pytest

from cost_models.operators import Attention, Router
from cost_models.readers import load_model, read_model
from cost_models.specs.counts import count_parameters, layer_parameters
from cost_models.specs.model import ModelSpec, Role


def blocks(model: ModelSpec, stack: str = "decoder") -> list[tuple[str, int]]:
    return [
        (layer.kind, layer.count)
        for layer in model.layers
        if layer.role is Role.BLOCK and layer.stack == stack
    ]


def test_llama_tied_and_untied():
    tied, untied = load_model("llama-3.2-1b"), load_model("llama-3.1-8b")
    assert tied.tied_embeddings and not untied.tied_embeddings
    # Tied: the head adds its final norm only. 2048 of 1,235,814,400.
    table = 128_256 * 2048
    assert layer_parameters(tied.kinds["head"]) == table + 2048
    assert count_parameters(tied).parameters == table + 2048 + 16 * layer_parameters(tied.kinds["dense"])
    assert blocks(untied) == [("dense", 32)]


def test_deepseek_v3_dense_then_experts_and_the_prediction_layer():
    model = load_model("deepseek-v3")
    assert blocks(model) == [("dense", 3), ("moe", 58)]
    assert [layer.role for layer in model.layers] == ["embedding", "block", "block", "mtp", "head"]
    # enorm, hnorm and its own final norm 3h, eh_proj 2h x h, one MoE layer; table and head are shared.
    assert count_parameters(model).mtp == 3 * 7168 + 2 * 7168**2 + 11_507_286_016
    router = next(op for op in model.kinds["moe"].operators if isinstance(op, Router))
    # The correction bias is a buffer, so the router is its matrix only.
    assert sum(group.elements for group in router.parameters()) == 7168 * 256
    attention = next(op for op in model.kinds["moe"].operators if isinstance(op, Attention))
    assert (attention.heads, attention.kv_heads, attention.qk_dim, attention.v_dim) == (128, 128, 192, 128)


def test_deepseek_without_compressed_queries():
    config = {"model_type": "deepseek_v3", "num_hidden_layers": 4, "q_lora_rank": None}
    full = read_model(config)
    compressed = read_model({**config, "q_lora_rank": 1536})
    # 7168 x 24576 against 7168 x 1536 + 1536 + 1536 x 24576, in 4 layers
    difference = 7168 * 24_576 - (7168 * 1536 + 1536 + 1536 * 24_576)
    assert count_parameters(full).parameters - count_parameters(compressed).parameters == 4 * difference
    assert "q_lora_rank" not in {each.key for each in full.assumed}


def test_an_absent_key_is_noted_with_its_effect_and_a_null_is_not():
    assumed = {each.key: each for each in read_model({"model_type": "deepseek_v3"}).assumed}
    assert assumed["q_lora_rank"].value == "1536"
    assert assumed["q_lora_rank"].changes_parameters
    assert not assumed["topk_group"].changes_parameters


def test_a_quantised_checkpoint_format_is_read_past_with_a_note():
    assumed = {each.key: each for each in load_model("deepseek-v3").assumed}
    assert assumed["quantization_config"].changes_parameters is False


def test_a_class_other_than_the_one_counted_is_noted():
    model = read_model({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]})
    noted = {each.key: each.value for each in model.assumed}
    assert noted["architectures"].startswith("LlamaForCausalLM")


def test_gemma_window_pattern():
    model = load_model("gemma-3-1b")
    assert blocks(model) == [("sliding", 5), ("full", 1)] * 4 + [("sliding", 2)]
    windows = {
        kind: op.window
        for kind in ("sliding", "full")
        for op in model.kinds[kind].operators
        if isinstance(op, Attention)
    }
    assert windows == {"sliding": 512, "full": 0}
    assert model.tied_embeddings


def test_nemotron_h_pattern_and_published_size():
    model = load_model("nemotron-h-8b")
    kinds = [layer.kind for layer in model.expanded(Role.BLOCK)]
    assert (kinds.count("mamba"), kinds.count("attention"), kinds.count("mlp")) == (24, 4, 24)
    # By hand, h 4096: Mamba in_proj h (2 x 8192 + 2 x 8 x 128 + 128), conv 10240 x (4 + 1), A, D and dt bias
    # 3 x 128, norm 8192, out_proj 8192 h; attention h (4096 + 2 x 1024) + 4096 h; MLP 2 h 21504; norms h.
    mamba = 4096 * 18_560 + 10_240 * 5 + 384 + 8192 + 8192 * 4096 + 4096
    attention = 4096 * 6144 + 4096 * 4096 + 4096
    mlp = 2 * 4096 * 21_504 + 4096
    assert [layer_parameters(model.kinds[k]) for k in ("mamba", "attention", "mlp")] == [
        mamba,
        attention,
        mlp,
    ]
    total = 2 * 131_072 * 4096 + 4096 + 24 * mamba + 4 * attention + 24 * mlp
    assert count_parameters(model).parameters == total == 8_100_852_736


def test_nemotron_h_with_experts_by_list():
    listed = read_model(
        {
            "model_type": "nemotron_h",
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        }
    )
    assert [kind for kind, _ in blocks(listed)] == ["mamba", "moe", "attention", "mlp"]
    # Experts are not gated: 8 x 2 x 4096 x 7688 routed, one shared of 7688, router 8 x 4096, norm.
    assert layer_parameters(listed.kinds["moe"]) == 9 * 2 * 4096 * 7688 + 8 * 4096 + 4096


def test_nemotron_h_latent_experts_and_prediction_layer():
    config = {"model_type": "nemotron_h", "moe_latent_size": 1024, "num_nextn_predict_layers": 1}
    model = read_model(config)
    # Experts on 1024 wide tokens, two projections 4096 x 1024, shared expert at full width.
    experts = 8 * 2 * 1024 * 7688 + 2 * 4096 * 1024 + 2 * 4096 * 7688 + 8 * 4096 + 4096
    assert layer_parameters(model.kinds["moe"]) == experts
    attention = layer_parameters(model.kinds["attention"])
    assert count_parameters(model).mtp == 3 * 4096 + 2 * 4096**2 + attention + experts


def test_t5_has_two_stacks_and_biases_only_in_the_first_layers():
    model = load_model("t5-3b")
    assert blocks(model, "encoder") == [("encoder_first", 1), ("encoder", 23)]
    assert blocks(model, "decoder") == [("decoder_first", 1), ("decoder", 23)]
    assert model.stacks[1].reads == ("encoder",)
    first, later = (layer_parameters(model.kinds[kind]) for kind in ("encoder_first", "encoder"))
    assert first - later == 32 * 32
    assert model.semantics["attention_scaled"] is False


@pytest.mark.parametrize("untying", [{"tie_word_embeddings": False}, {"scale_decoder_outputs": False}])
def test_t5_v1_1_has_a_head_of_its_own(untying):
    base = {"model_type": "t5", "feed_forward_proj": "gated-gelu"}
    more = count_parameters(read_model({**base, **untying})).parameters
    assert more - count_parameters(read_model(base)).parameters == 32_128 * 512


def test_qwen_moe_mixes_dense_and_routed_layers():
    config = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 6,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
    }
    assert blocks(read_model(config)) == [("dense", 3), ("moe", 1), ("dense", 1), ("moe", 1)]


def test_qwen2_windows_start_at_max_window_layers():
    config = {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 20}
    assert blocks(read_model(config)) == [("dense_full", 20), ("dense_sliding", 12)]


def test_resnet_18_blocks_are_basic():
    config = {
        "model_type": "resnet",
        "layer_type": "basic",
        "hidden_sizes": [64, 128, 256, 512],
        "depths": [2, 2, 2, 2],
        "num_labels": 1000,
    }
    model = read_model(config)
    # torchvision documents resnet18 with 11,689,512 parameters.
    assert count_parameters(model).parameters == 11_689_512
    assert model.is_vision
    assert model.kinds["stage4"].boundary_downsample == 32


def test_a_model_survives_its_own_file_form():
    for name in ("deepseek-v3", "t5-3b", "resnet-50", "nemotron-h-8b"):
        model = load_model(name)
        assert ModelSpec.model_validate_json(model.model_dump_json()) == model
