"""Configs that the library cannot build: one sentence with the key or the library's reason, never a traceback."""

import copy
import random

import pytest

from cost_models.errors import BadInput, InvalidModel, UnknownModelFamily
from cost_models.readers import read_model, sources

pytest.importorskip("transformers")

from cost_models.readers.torch_module import can_build, read_transformers
from planner.validation.oracle import oracle_rows

VALUES = (0, -1, 1, 3, 10**30, "4096", True, 4096.5, None, [], {}, [1, "a"], "", "../x")
QUICK, MANY = 12, 300


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANNER_CACHE_DIR", str(tmp_path))


def test_a_type_nobody_knows_is_refused_by_name_without_loading_anything():
    assert not can_build("nosuchthing")
    with pytest.raises(UnknownModelFamily, match="nosuchthing"):
        read_model({"model_type": "nosuchthing"})


def test_without_the_extra_the_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(sources, "can_build", lambda family: False)
    with pytest.raises(UnknownModelFamily, match=r"xlstm.*pip install parallelism-planner\[transformers\]"):
        read_model({"model_type": "xlstm"})


def test_the_plain_reader_alone_can_be_asked():
    with pytest.raises(UnknownModelFamily, match="xlstm"):
        read_model({"model_type": "xlstm"}, reader="plain")


@pytest.mark.parametrize(
    ("config", "pointer", "word"),
    [
        ({"num_hidden_layers": 1_000_000_000}, "/num_hidden_layers", "1000000000"),
        ({"num_hidden_layers": 5_000}, "/num_hidden_layers", "2,000"),
        ({"num_hidden_layers": -1}, "/num_hidden_layers", "-1"),
        ({"hidden_size": 10**12}, "/hidden_size", "1000000000000"),
        ({"num_experts": 2_000_000}, "/num_experts", "2,000,000"),
        ({"num_labels": 50_000_000}, "/num_labels", "50,000,000"),
        ({"layer_types": ["a"] * 100_001}, "/layer_types", "100,001"),
    ],
)
def test_sizes_that_no_model_has_are_refused_before_anything_is_built(config, pointer, word):
    with pytest.raises(InvalidModel) as caught:
        read_transformers({"model_type": "xlstm", **config})
    assert caught.value.pointer == pointer
    assert word in caught.value.detail


def test_a_class_of_another_family_is_refused():
    with pytest.raises(InvalidModel, match="LlamaForCausalLM"):
        read_transformers({"model_type": "regnet", "architectures": ["LlamaForCausalLM"]})


def test_nothing_is_run_that_a_config_brings_along():
    config = {
        "model_type": "regnet",
        "auto_map": {"AutoModel": "evil--code.Model"},
        "trust_remote_code": True,
    }
    assert read_transformers(config).layers


@pytest.mark.parametrize("mutations", [QUICK, pytest.param(MANY, marks=pytest.mark.matrix)])
def test_mutated_configs_are_read_or_refused_in_one_line(mutations):
    chance = random.Random(mutations)
    rows = [
        row
        for row in oracle_rows()
        if row.config.get("model_type") in ("regnet", "openai-gpt", "yoso", "segformer", "fsmt", "siglip")
        and len(row.config) > 8
    ]
    for _ in range(mutations):
        config = copy.deepcopy(dict(chance.choice(rows).config))
        key = chance.choice([key for key in config if key != "model_type"])
        if chance.random() < 0.25:
            del config[key]
        else:
            config[key] = chance.choice(VALUES)
        try:
            read_transformers(config)
        except BadInput as error:
            assert "\n" not in error.detail and 20 < len(error.detail) < 500, (key, error.detail)
