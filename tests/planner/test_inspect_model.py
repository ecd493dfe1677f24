"""`planner inspect`: kinds, layers and totals agree; shared, tied and predicted parts stand apart; people see them."""

import pytest

from cost_models.readers import load_model, read_model
from planner.inspect_model import inspect_model
from planner.render import show_model

MODELS = [
    "llama-3.1-8b",
    "deepseek-v3",
    "gemma-3-1b",
    "t5-3b",
    "resnet-50",
    "qwen3-next-80b-a3b",
    "llava-1.5-7b",
]


@pytest.mark.parametrize("name", MODELS)
def test_kinds_and_layers_add_up_to_the_model(name):
    facts = inspect_model(load_model(name), 2048)
    kinds = [each for each in facts["kinds"] if each["role"] != "mtp"]
    layers = [each for each in facts["layers"] if each["role"] != "mtp"]
    total = facts["forward_flops_per_token"]
    assert sum(each["layers"] * each["forward_flops_per_token"] for each in kinds) == pytest.approx(total)
    assert sum(each["forward_flops_per_token"] for each in layers) == pytest.approx(total)
    assert sum(each["layers"] for each in facts["kinds"]) == len(facts["layers"])
    attention = sum(each["layers"] * each["attention_flops_per_token"] for each in kinds)
    assert attention == pytest.approx(facts["attention_flops_per_token"])
    if not facts["tied_embeddings"]:
        assert sum(each["layers"] * each["parameters"] for each in kinds) == facts["parameters"]
        assert sum(each["layers"] * each["active_parameters"] for each in kinds) == facts["active_parameters"]


def test_deepseek_v3_by_hand():
    facts = inspect_model(load_model("deepseek-v3"), 4096)
    dense, moe = (next(each for each in facts["kinds"] if each["kind"] == kind) for kind in ("dense", "moe"))
    assert (dense["layers"], moe["layers"], facts["reader"]) == (3, 58, "huggingface")
    # 248 of 256 experts of 3 x 7168 x 2048 are idle
    assert moe["parameters"] - moe["active_parameters"] == 248 * 3 * 7168 * 2048
    # 128 heads, keys of 192 and values of 128, half of the square
    assert dense["attention_flops_per_token"] == 2 * 128 * (192 + 128) * 4096 / 2
    assert facts["head_parameters"] == 7168 * 129280 + 7168


def test_a_tied_head_is_counted_with_the_embedding():
    facts = inspect_model(load_model("llama-3.2-1b"), 2048)
    assert facts["tied_embeddings"]
    assert facts["head_parameters"] == 2048  # the final norm


def test_people_see_kinds_totals_and_what_changes_the_count(capsys):
    show_model(inspect_model(read_model({"model_type": "albert"}), 512))
    shown = capsys.readouterr().out
    assert "(shared)" in shown
    assert "also the head's matrix" in shown
    assert "assumed, changes the count: hidden_size = 4096" in shown
    assert "per token at sequence 512" in shown and "of it in attention's scores" in shown
    assert "buffers" in shown
    show_model(inspect_model(load_model("t5-3b"), 512))
    assert "decoder_first" in capsys.readouterr().out
