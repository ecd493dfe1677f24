"""Composites of a vision tower and a text model: one image a sequence is priced, parts contradict by their keys."""

import pytest

from cost_models.errors import InvalidModel, UnknownModelFamily
from cost_models.readers import read_model
from cost_models.specs.counts import forward_flops
from cost_models.specs.model import Role
from planner.validation.oracle import oracle_rows

CONFIGS = [(row.name, row.model_type, row.config) for row in oracle_rows() if row.form == "as published"]
LLAVA = next(config for name, _, config in CONFIGS if name == "llava-1.5-7b")


def test_the_tower_comes_first_and_has_its_own_positions():
    model = read_model(LLAVA)
    assert [(stack.name, stack.positions) for stack in model.stacks] == [
        ("vision", 577),  # (336 / 14)^2 patches and the class token
        ("connector", 576),
        ("decoder", 0),
    ]
    blocks = [(layer.kind, layer.count) for layer in model.layers if layer.role is Role.BLOCK]
    assert blocks == [("vision", 24), ("dense", 32)]
    assert not model.is_vision


def test_a_longer_sequence_holds_the_same_image():
    llava, text = read_model(LLAVA), read_model({**LLAVA["text_config"], "tie_word_embeddings": False})
    at = {length: forward_flops(llava, length) - forward_flops(text, length) for length in (1024, 4096)}
    assert at[1024] == at[4096]
    # 577 positions: 2 x (patches 588 x 1024 + 24 x (4 x 1024^2 + 2 x 1024 x 4096)) and 24 x 4 x 577 x 1024 attention;
    # 576 positions: 2 x (1024 x 4096 + 4096^2)
    tower = 577 * (2 * (588 * 1024 + 24 * (4 * 1024**2 + 2 * 1024 * 4096)) + 24 * 4 * 577 * 1024)
    assert at[1024] == tower + 576 * 2 * (1024 * 4096 + 4096**2)


def test_keys_of_a_part_are_assumed_under_its_name():
    assumed = {each.key: each for each in read_model({"model_type": "llama4", "text_config": {}}).assumed}
    assert assumed["vision_config.intermediate_size"].value == "5632"
    assert assumed["vision_config.hidden_size"].changes_parameters
    assert assumed["text_config.hidden_size"].value == "5120"
    assert not assumed["images_per_sequence"].changes_parameters


QWEN = next(config for _, family, config in CONFIGS if family == "qwen3_vl_moe")


def test_the_whole_decides_whether_the_table_is_tied():
    stated = {**QWEN, "text_config": {**QWEN["text_config"], "tie_word_embeddings": True}}
    assert not read_model(stated).tied_embeddings
    silent = {key: value for key, value in stated.items() if key != "tie_word_embeddings"}
    with pytest.raises(InvalidModel, match="state it for the whole"):
        read_model(silent)


@pytest.mark.parametrize(
    ("family", "part", "changed", "pointer"),
    [
        ("llava", "vision_config", {"num_attention_heads": 7}, "/vision_config/hidden_size"),
        ("llava", "vision_config", {"model_type": "siglip_vision_model"}, "/vision_config/model_type"),
        ("llava", "text_config", {"model_type": "gemma"}, "/text_config/model_type"),
        ("llava", "text_config", {"hidden_size": 4100}, "/text_config/hidden_size"),
        ("qwen3_vl_moe", "vision_config", {"out_hidden_size": 4096}, "/vision_config/out_hidden_size"),
        (
            "qwen3_vl_moe",
            "vision_config",
            {"num_position_embeddings": 9},
            "/vision_config/num_position_embeddings",
        ),
        (
            "qwen3_vl_moe",
            "vision_config",
            {"deepstack_visual_indexes": [27]},
            "/vision_config/deepstack_visual_indexes",
        ),
        ("llama4", "vision_config", {"projector_output_dim": 64}, "/vision_config/projector_output_dim"),
        ("llama4", "vision_config", {"pixel_shuffle_ratio": 2.0}, "/vision_config/pixel_shuffle_ratio"),
    ],
)
def test_contradictions_point_into_the_part(family, part, changed, pointer):
    config = next(each for _, of, each in CONFIGS if of == family)
    with pytest.raises(InvalidModel) as caught:
        read_model({**config, part: {**config.get(part, {}), **changed}})
    assert caught.value.pointer == pointer


def test_what_is_needed_and_not_stated():
    for config, pointer in (
        ({"model_type": "llava", "text_config": {}}, "/vision_config"),
        ({"model_type": "qwen3_vl_moe"}, "/text_config"),
        ({"model_type": "qwen3_vl_moe", "text_config": {}}, "/text_config/vocab_size"),
        ({"model_type": "gemma3", "mm_tokens_per_image": 200}, "/mm_tokens_per_image"),
        ({"model_type": "llama4", "vision_config": [1]}, "/vision_config"),
    ):
        with pytest.raises(InvalidModel) as caught:
            read_model(config)
        assert caught.value.pointer == pointer


def test_a_text_family_with_a_tower_is_still_refused():
    with pytest.raises(UnknownModelFamily, match="composite"):
        read_model({"model_type": "llama", "vision_config": {}})
