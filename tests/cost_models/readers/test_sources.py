"""Where a model comes from: what is refused before and after its keys are read."""

import json
from pathlib import Path

import pytest

from cost_models.errors import InvalidModel
from cost_models.profiles import model_config
from cost_models.readers import load_model, model_from_text, read_model

BLOCK = {"kind": "b", "count": 100_000, "mlp": {"width": 64}}


def test_keys_that_are_legal_one_by_one_may_make_too_many_layers_together() -> None:
    config = {**model_config("llama-3.2-1b"), "num_hidden_layers": 100_000}
    with pytest.raises(InvalidModel, match="the model has 100,002 layers; give at most 100,000"):
        read_model(config)
    short = {"layers_file": 1, "hidden_size": 64, "vocab_size": 100, "layers": [BLOCK]}
    with pytest.raises(InvalidModel, match="give at most 100,000"):
        read_model(short)


def test_a_byte_order_mark_is_read_past(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model_config("gpt2")), encoding="utf-8-sig")
    assert load_model(str(path)).family == "gpt2"


@pytest.mark.parametrize(
    "text", ['{"model_type": "gpt2", "model_type": "llama"}', '{"n": NaN}', "[" * 99_999]
)
def test_text_with_two_meanings_or_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidModel, match=r"twice|NaN|nested"):
        model_from_text(text)


def test_an_operator_that_reads_nothing_is_refused() -> None:
    spec = read_model(model_config("llama-3.2-1b")).model_dump(mode="json")
    spec["kinds"]["dense"]["operators"][1]["inputs"] = []
    with pytest.raises(InvalidModel, match="0 inputs; name at least 1"):
        read_model(spec)
