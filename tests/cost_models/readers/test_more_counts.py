"""Decoders of mixed layers and relatives of Llama: their kinds of layers, and what contradicts itself."""

from copy import deepcopy

import pytest

from cost_models.errors import InvalidModel
from cost_models.operators import LinearAttention
from cost_models.operators.base import Shard
from cost_models.readers import read_model
from cost_models.specs.counts import count_parameters, layer_parameters
from cost_models.specs.model import ModelSpec, Role
from planner.validation.oracle import oracle_rows


def published(name: str) -> dict[str, object]:
    """A copy of the config of the first row of this name."""
    return deepcopy(dict(next(row.config for row in oracle_rows() if row.name == name)))


NAS = "Llama-3.3-Nemotron-Super-49B"


def test_layers_without_attention_have_none():
    model = read_model(published(NAS))
    names = {kind: {each.name for each in found.operators} for kind, found in model.kinds.items()}
    without = [
        layer.kind for layer in model.expanded(Role.BLOCK) if "core_attention" not in names[layer.kind]
    ]
    # 49 of the 80 layers kept their attention; 64 heads in groups of 8 are 8 key/value heads.
    assert len(without) == 31
    assert all("attn_norm" not in names[kind] for kind in without)
    assert model.num_kv_heads == 8


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("attention", "replace_with_linear", True),
        ("attention", "num_sink_tokens", 4),
        ("attention", "n_heads_in_group", 7),
        ("attention", "n_heads_in_group", "8"),
        ("attention", "no_op", "yes"),
        ("ffn", "replace_with_linear", True),
        ("ffn", "sparsify", ["2:4"]),
        ("ffn", "ffn_mult", -1),
        ("ffn", "ffn_mult", 1e30),
        ("ffn", "ffn_mult", None),
    ],
)
def test_a_block_that_is_not_known_is_refused(part, key, value):
    config = published(NAS)
    config["block_configs"][3][part][key] = value
    with pytest.raises(InvalidModel) as caught:
        read_model(config)
    assert caught.value.pointer == f"/block_configs/3/{part}/{key}"


@pytest.mark.parametrize("value", [None, [], [{}] * 79, ["attention"] * 80, [{"attention": {}}] * 80])
def test_blocks_in_another_form_are_refused(value):
    config = published(NAS) | {"block_configs": value}
    with pytest.raises(InvalidModel, match="block_configs"):
        read_model(config)


def test_a_block_of_nothing_is_refused():
    config = published(NAS)
    config["block_configs"][6]["ffn"]["no_op"] = True
    with pytest.raises(InvalidModel, match="leaves out both"):
        read_model(config)


def test_a_missing_list_of_blocks_is_named():
    config = published(NAS)
    del config["block_configs"]
    with pytest.raises(InvalidModel, match="no block_configs"):
        read_model(config)


def gemma4(**keys: object) -> ModelSpec:
    """A small Gemma 4 of 7 layers, the sixth and the last full."""
    return read_model({"model_type": "gemma4_text", "num_hidden_layers": 7, **keys})


def test_layers_that_share_keys_have_neither_keys_nor_values():
    own, shared = gemma4(), gemma4(num_kv_shared_layers=1, use_double_wide_mlp=True)
    difference = layer_parameters(shared.kinds["full_shared_kv"]) - layer_parameters(own.kinds["full"])
    # Twice the feed-forward: 3 x 2304 x 9216 more; less keys and values, 2 x 2304 x 4 x 512, and a norm of 512.
    assert difference == 3 * 2304 * 9216 - 2 * 2304 * 4 * 512 - 512


def test_a_type_without_a_layer_to_share_from_is_refused():
    with pytest.raises(InvalidModel, match="num_kv_shared_layers"):
        gemma4(num_kv_shared_layers=2)


def test_the_last_layer_is_full_whatever_is_listed():
    model = gemma4(layer_types=["sliding_attention"] * 7)
    assert model.layers[-2].kind.startswith("full")
    assert any("last layer" in each.value for each in model.assumed)


@pytest.mark.parametrize(
    "value", [[], {"x": {}}, {"05": 3}, {"05": {"head_dim": 64}}, {"05": {"head_dim": "a"}}]
)
def test_sizes_by_layer_that_do_not_agree_are_refused(value):
    with pytest.raises(InvalidModel, match="per_layer_config"):
        gemma4(per_layer_config=value)


def test_heads_of_an_unknown_size_are_not_guessed():
    with pytest.raises(InvalidModel, match="no head_dim"):
        read_model({"model_type": "iquestcoder", "hidden_size": 2048})


def test_kimi_linear_as_published():
    numbers = {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27]}
    sizes = {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}
    model = read_model({"model_type": "kimi_linear", "linear_attn_config": {**numbers, **sizes}})
    # The checkpoint is reported to hold 49,122,681,728 numbers; 26 x 256 are the routers' correction biases, buffers.
    assert count_parameters(model).parameters == 49_122_681_728 - 26 * 256
    assert [i + 1 for i, each in enumerate(model.expanded(Role.BLOCK)) if each.kind == "moe_full"] == [
        4, 8, 12, 16, 20, 24, 27,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {"linear_attn_config": {"full_attn_layers": [4, 28]}},
        {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2]}},
        {"linear_attn_config": {"head_dim": 128}, "linear_head_dim": 64},
        {"attention_bias": True},
        {"attn_res_block_size": 4},
        {"num_experts": 6, "num_expert_group": 4, "num_experts_per_token": 2},
        {"num_experts": 6, "num_local_experts": 8},
    ],
)
def test_kimi_linear_of_another_kind_is_refused(keys):
    with pytest.raises(InvalidModel):
        read_model({"model_type": "kimi_linear", **keys})


def test_a_decay_for_each_feature_has_a_bias_for_each():
    sizes = {"heads": 2, "key_heads": 2, "qk_dim": 4, "v_dim": 4, "delta": True, "gated": True}
    by_head = LinearAttention(name="delta", inputs=("q", "k", "v"), **sizes)
    by_feature = by_head.model_copy(update={"by_feature": True})
    # A_log 2 and dt_bias 2, or 2 x 4.
    assert sum(group.elements for group in by_head.parameters()) == 4
    assert sum(group.elements for group in by_feature.parameters()) == 10
    at = Shard(sequences=1.0, seq_len=8.0, context_len=0.0)
    # q, k, v of 8 features each, steps 2, decays 2 or 8: 8 tokens x 28 or 34.
    assert by_head.elements_in(at) == 8 * 28
    assert by_feature.elements_in(at) == 8 * 34


def lfm2(**keys: object) -> ModelSpec:
    """LFM2-1.2B in the spelling of its first config."""
    sizes = {"hidden_size": 2048, "block_ff_dim": 12288, "num_hidden_layers": 16}
    return read_model({"model_type": "lfm2", "full_attn_idxs": [2, 5, 8, 10, 12, 14], **sizes, **keys})


def test_lfm2_as_published():
    model = lfm2()
    assert count_parameters(model).parameters == 1_170_340_608
    # Linear to 3 h and back, 4 x 2048^2; convolution 3 x 2048; feed-forward 3 x 2048 x 8192; two norms.
    assert layer_parameters(model.kinds["conv"]) == 4 * 2048**2 + 3 * 2048 + 3 * 2048 * 8192 + 2 * 2048


@pytest.mark.parametrize(
    "keys",
    [
        {"full_attn_idxs": [16]},
        {"layer_types": ["conv"] * 16},
        {"intermediate_size": 8192},
        {"tie_embedding": False, "tie_word_embeddings": True},
        {"block_ffn_dim_multiplier": 1e20},
    ],
)
def test_lfm2_that_contradicts_itself_is_refused(keys):
    with pytest.raises(InvalidModel):
        lfm2(**keys)


@pytest.mark.parametrize("entry", [None, 3, ["full_attention"], {"full_attention": 1}])
def test_a_layer_type_that_is_no_text_is_refused(entry):
    with pytest.raises(InvalidModel) as caught:
        gemma4(layer_types=[entry] * 7)
    assert caught.value.pointer == "/layer_types/0"
