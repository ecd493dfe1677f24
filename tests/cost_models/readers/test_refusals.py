"""Configs that contradict themselves or hold nonsense are refused with key, numbers and what to change."""

import json
import math

import pytest

from cost_models.errors import BadInput, InvalidModel, UnknownModelFamily
from cost_models.readers import FAMILIES, load_model, model_from_text, read_model
from planner.validation.oracle import oracle_rows

EXAMPLES = {family: {"model_type": family} for family in FAMILIES}
EXAMPLES |= {row.model_type: row.config for row in oracle_rows() if row.model_type in FAMILIES}
EXAMPLES["nemotron_h"] = {"model_type": "nemotron_h", "hybrid_override_pattern": "M*-E"}
NONSENSE = (0, -1, 10**30, "4096", True, 4096.5, math.nan, math.inf, None, [], {}, [1, "a"], "")

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32}


def refusal(config, kind=InvalidModel) -> BadInput:
    with pytest.raises(kind) as caught:
        read_model(config)
    return caught.value


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"])
@pytest.mark.parametrize("value", NONSENSE)
def test_sizes_must_be_whole_and_sensible(key, value):
    error = refusal({**LLAMA, key: value})
    assert error.pointer == f"/{key}"
    assert key in error.detail
    assert "; " in error.detail


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_nonsense_under_any_key_never_ends_in_a_traceback(family):
    config = EXAMPLES[family]
    for key in (*config, "head_dim", "sliding_window", "num_nextn_predict_layers", "architectures"):
        for value in NONSENSE:
            try:
                read_model({**config, key: value})
            except BadInput as error:
                assert error.detail and len(error.detail) < 500


@pytest.mark.parametrize(
    ("config", "pointer", "numbers"),
    [
        ({**LLAMA, "hidden_size": 4100}, "/hidden_size", ("4100", "32")),
        ({**LLAMA, "num_key_value_heads": 5}, "/num_key_value_heads", ("32", "5")),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "/num_experts_per_tok", ("9", "8")),
        ({"model_type": "qwen3_moe", "num_experts_per_tok": 129}, "/num_experts_per_tok", ("129", "128")),
        ({"model_type": "deepseek_v3", "first_k_dense_replace": 62}, "/first_k_dense_replace", ("62", "61")),
        ({"model_type": "deepseek_v3", "n_group": 7}, "/n_group", ("256", "7")),
        ({"model_type": "deepseek_v3", "topk_group": 9}, "/topk_group", ("9", "8")),
        ({"model_type": "gemma3_text", "layer_types": ["full_attention"]}, "/layer_types", ("1", "26")),
        ({"model_type": "gemma3_text", "layer_types": ["wide"] * 26}, "/layer_types/0", ("wide",)),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M-*", "num_hidden_layers": 4},
            "/hybrid_override_pattern",
            ("3", "4"),
        ),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "/hybrid_override_pattern", ("X",)),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": ""}, "/hybrid_override_pattern", ("empty",)),
        ({"model_type": "nemotron_h", "n_groups": 7}, "/n_groups", ("128", "7")),
        ({"model_type": "t5", "feed_forward_proj": "swish"}, "/feed_forward_proj", ("swish", "relu")),
        ({"model_type": "resnet", "depths": [3, 4]}, "/depths", ("2", "4")),
        ({"model_type": "resnet", "hidden_sizes": [256, 512, 1024, 2047]}, "/hidden_sizes", ("2047", "4")),
        ({"model_type": "resnet", "layer_type": "wide"}, "/layer_type", ("wide", "basic")),
        ({"model_type": "gpt2", "n_embd": 770}, "/n_embd", ("770", "12")),
        ({"model_type": "bert", "hidden_size": 770}, "/hidden_size", ("770", "12")),
        ({"model_type": "bert", "add_cross_attention": True}, "/add_cross_attention", ("true",)),
    ],
)
def test_contradictions_name_the_key_and_the_numbers(config, pointer, numbers):
    error = refusal(config)
    assert error.pointer == pointer
    assert all(number in error.detail for number in numbers)


def test_an_unknown_family_is_refused_by_name_with_the_ways_out():
    error = refusal({"model_type": "lama"}, UnknownModelFamily)
    assert "'lama'" in error.detail
    assert "did you mean llama" in error.detail
    assert "layers file" in error.detail
    assert "pip install parallelism-planner[transformers]" in error.detail
    assert set(error.allowed) == set(FAMILIES)


def test_an_architecture_alone_names_the_family():
    assert read_model({"architectures": ["Qwen2ForCausalLM"]}).family == "qwen2"
    assert read_model({"architectures": ["MT5ForConditionalGeneration"]}).family == "mt5"
    unknown = {"architectures": ["LlamaForAudioTagging"]}
    assert "LlamaForAudioTagging" in refusal(unknown, UnknownModelFamily).detail


def test_composite_configs_are_refused_by_name():
    config = {"model_type": "no_such", "text_config": {}, "vision_config": {}}
    error = refusal(config, UnknownModelFamily)
    assert "'no_such' is composite (text_config, vision_config)" in error.detail


def test_neither_config_nor_layers_file():
    assert "layers file" in refusal({"hidden_size": 4096}).detail


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"model_type": "llama",\n "hidden_size": }', "line 2 column 17"),
        ("", "line 1 column 1"),
        ("[1, 2]", "list"),
        ("3", "int"),
    ],
)
def test_broken_text_names_the_place(text, where):
    with pytest.raises(InvalidModel) as caught:
        model_from_text(text, "config.json")
    assert where in caught.value.detail
    assert "config.json" in caught.value.detail


def test_broken_toml_and_deep_nesting_are_refused():
    with pytest.raises(InvalidModel, match="not valid TOML"):
        model_from_text("layers_file = ", "model", toml=True)
    with pytest.raises(InvalidModel):
        model_from_text("[" * 100_000, "model")


def test_a_path_that_is_not_there_and_a_mistyped_name():
    with pytest.raises(InvalidModel, match=r"missing\.json cannot be read.*catalog models"):
        load_model("missing.json")
    with pytest.raises(InvalidModel, match=r"did you mean llama-3\.1-70b"):
        load_model("llama-3.1-70")


def test_a_config_folder_a_file_and_a_catalog_name_load(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 2}))
    assert load_model(str(tmp_path)).num_blocks == 2
    assert load_model(str(tmp_path / "config.json")).name == tmp_path.name
    assert load_model("llama-3.1-8b").name == "llama-3.1-8b"


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidModel, match="cannot be read"):
        load_model(str(path))


def test_a_text_is_shown_as_one():
    assert (
        "tie_word_embeddings is 'false'; give true or false"
        in refusal({**LLAMA, "tie_word_embeddings": "false"}).detail
    )
    assert "hidden_size is '64'" in refusal({**LLAMA, "hidden_size": "64"}).detail


def test_another_spelling_of_a_family_is_understood():
    assert "did you mean llama?" in refusal({**LLAMA, "model_type": "LLaMA"}, UnknownModelFamily).detail
