"""Models that a library or a factory builds, on every command: inspected, evaluated, planned, checked, refused."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

CONFIG = {
    "model_type": "yoso",
    "architectures": ["YosoForMaskedLM"],
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
}
FACTORY = """
import torch
from torch import nn

def net():
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), torch.zeros(2, 64)

def broken():
    raise ValueError("no weights today")

number = 7
"""
JOB = "--cluster dgx-h100:8 --seq-len 512 --global-batch 64 --engine torch"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "own_models_of_this_test.py").write_text(FACTORY)
    return tmp_path


def test_inspect_says_who_read_it(run: Any) -> None:
    facts = json.loads(run("inspect --model config.json --json").out)
    assert facts["reader"] == "transformers"
    # The head's matrix is the table of 1,000 x 64, counted once and listed in both layers.
    assert facts["parameters"] == sum(layer["parameters"] for layer in facts["layers"]) - 1000 * 64
    assert "as transformers builds it" in run("inspect --model config.json").out


def test_the_reader_can_be_chosen(run: Any) -> None:
    assert run("inspect --model config.json --reader plain").refused("yoso")
    assert run("inspect --model config.json --reader torch").refused("transformers")


def test_data_parallel_zero_and_pipeline_are_planned_tensor_parallel_is_refused(
    run: Any, folder: Path
) -> None:
    answer = run(f"plan --model config.json {JOB} --max-seconds 20 -o plan.json --json")
    best = json.loads(answer.out)["best"]
    assert answer.code == 0 and best["strategy"]["tp"] == best["strategy"]["cp"] == 1
    assert run("check plan.json --json").code == 0
    piped = run(f"evaluate --model config.json {JOB} --strategy pp=2,zero=1 --json")
    assert json.loads(piped.out)["strategy"]["stages"] == "2+2"
    assert json.loads(piped.out)["model"]["reader"] == "transformers"
    shown = run(f"evaluate --model config.json {JOB} --strategy zero=1").out
    assert "as transformers builds it" in shown
    assert run(f"evaluate --model config.json {JOB} --strategy tp=2").refused("traced_axes", "tp 1")


def test_a_factory_is_a_model(run: Any) -> None:
    facts = json.loads(run("inspect --model own_models_of_this_test:net --seq-len 1 --json").out)
    assert facts["reader"] == "torch_module" and facts["parameters"] == 4 * (64 * 64 + 64)
    assert facts["forward_flops_per_token"] == 4 * 2 * 64 * 64


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("own_models_of_this_test:broken", ("no weights today",)),
        ("own_models_of_this_test:number", ("int",)),
        ("own_models_of_this_test:nothing", ("cannot be imported", "nothing")),
        ("no_such_module_here:net", ("cannot be imported", "no_such_module_here")),
    ],
)
def test_a_factory_that_fails_is_bad_input(run: Any, model: str, words: tuple[str, ...]) -> None:
    assert run(f"inspect --model {model}").refused(*words)


def test_a_config_that_the_library_refuses_is_bad_input(run: Any, folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": 65}))
    outcome = run("inspect --model config.json")
    assert outcome.refused("yoso") and outcome.err.count("\n") == 1
