"""`from planner import plan, evaluate, check`, and `assert_fits` for other repositories' tests."""

import json
import subprocess
import sys

import pytest

import planner
from cost_models.errors import BadInput, IllegalStrategy
from planner import check, evaluate, plan
from planner.testing import assert_fits

JOB = {"seq_len": 2048, "global_batch": 32}


def test_three_functions():
    found = plan("llama-3.2-1b", "dgx-h100:8", max_seconds=10, **JOB)
    assert found.best is not None
    text = found.best.strategy.text()
    assert evaluate("llama-3.2-1b", "dgx-h100:8", text, **JOB).step_s == found.best.step_s
    assert check("llama-3.2-1b", "dgx-h100:8", found.best.strategy.to_json(), **JOB).passed


def test_names_stay_functions_whatever_was_imported():
    code = (
        "import planner.evaluation, planner.checking, planner.answers, planner.cli.commands.evaluate;"
        "from planner import plan, evaluate, check; assert callable(plan) and callable(evaluate) and callable(check)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_is_light():
    code = "import sys, planner; from planner import plan; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_and_mappings(tmp_path):
    config = {
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "vocab_size": 1024,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    steps = {evaluate(model, "dgx-h100:1", "mbs=1", **JOB).step_s for model in (config, path, str(path))}
    assert len(steps) == 1


def test_assert_fits_says_what_is_short():
    assert assert_fits("llama-3.1-8b", "dgx-h100:8", "tp=2", **JOB).passed
    with pytest.raises(AssertionError, match="does not fit: stage 0 needs"):
        assert_fits("llama-3.1-70b", "dgx-h100:8", "tp=8", seq_len=8192, global_batch=8)


@pytest.mark.parametrize(
    "call", [lambda: plan("no-such", "dgx-h100:8", **JOB), lambda: plan("gpt2", "dgx-h100:8")]
)
def test_wrong_input_is_one_kind_of_error(call):
    with pytest.raises(BadInput):
        call()


def test_illegal_strategies_name_their_rule():
    with pytest.raises(IllegalStrategy, match="not divisible"):
        evaluate("llama-3.2-1b", "dgx-h100:8", "tp=3", **JOB)


def test_unknown_names_stay_unknown():
    with pytest.raises(AttributeError):
        planner.solve  # noqa: B018
