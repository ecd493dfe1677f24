"""`planner run` from the command line: one JSON object, refusals before launch, dry runs, exit codes."""

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planner.cli.conftest import Run

# The elastic agent leaves its log files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "vocab_size": 128,
}


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """Options of a job that any machine runs."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return f"--model {path} --cluster cpu:2 --seq-len 16 --global-batch 4 --precision fp32 --engine torch"


def test_a_plan_file_is_run(run: Run, tiny: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert run(f"plan {tiny} -o {plan} --json").code == 0
    found = run(f"run {plan} --steps 2 --json --progress jsonl")
    assert found.code == 0, found.err
    values = json.loads(found.out)
    assert values["ran"]
    assert values["steps"] == 2
    assert values["ratio"]["peak_bytes"] > 0
    lines = [json.loads(line) for line in found.err.splitlines() if line.startswith("{")]
    assert [line["step"] for line in lines if line["event"] == "step"] == [1, 2]


def test_a_run_for_people(run: Run, tiny: str) -> None:
    found = run(f"run {tiny} --strategy dp=2 --steps 2")
    assert found.code == 0, found.err
    assert "predicted / measured" in found.out
    assert "step 2:" in found.err


def test_verify(run: Run, tiny: str) -> None:
    found = run(f"run {tiny} --strategy pp=2,stages=1+1 --verify --json")
    assert found.code == 0, found.err
    values = json.loads(found.out)
    assert values["verified"] is True
    assert set(values["max_relative_difference"]) == {"loss", "gradients", "parameters"}
    assert values["steps"] == 5


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--strategy cp=2 --set engine.attention=unfused", ("run_cp_unfused", "cp_kind=ulysses")),
        ("--engine megatron --strategy dp=2", ("run_engine", "--engine torch")),
        ("--strategy dp=2 --data missing.txt", ("data", "missing.txt")),
        ("--strategy dp=2 --set engine.compile=true", ("engine.compile=false",)),
        ("--strategy dp=2 --dry-run", ("-o DIR",)),
        ("--strategy dp=2 --profile", ("--log-dir",)),
        ("--strategy dp=2 --nproc 2", ("--dry-run",)),
        ("", ("--strategy",)),
    ],
)
def test_what_would_not_run_as_planned_is_refused(
    run: Run, tiny: str, more: str, words: tuple[str, ...]
) -> None:
    question = tiny.replace("--engine torch", "") if "--engine" in more else tiny
    assert run(f"run {question} {more}").refused(*words)


def test_a_failed_run_says_no(run: Run, tiny: str) -> None:
    found = run(f"run {tiny} --strategy dp=2 --data tests.planner.executor.test_run:bad_samples --json")
    assert found.code == 1
    assert json.loads(found.out)["failure"]["exit_code"] == 1
    assert "a sample holds 3 tokens" in found.err


OWN = """
from torch import nn

def model():
    layers = nn.Sequential(nn.Embedding(128, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 128))
    return {"module": layers, "stages": [["0", "1", "2"], ["3"]]}

def samples():
    while True:
        yield list(range(17))
"""


def test_a_users_own_model_and_data_lie_where_the_command_is_started(
    run: Run, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_of_test_run.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    own = "--factory own_of_test_run:model --data own_of_test_run:samples"
    found = run(f"run {tiny} --strategy pp=2 --steps 2 --json {own}")
    assert found.code == 0, found.err
    assert json.loads(found.out)["steps"] == 2


def test_a_dry_run_writes_a_script_and_starts_nothing(run: Run, tiny: str, tmp_path: Path) -> None:
    folder = tmp_path / "dry"
    found = run(f"run {tiny} --strategy dp=2 --dry-run -o {folder} --json")
    assert found.code == 0, found.err
    assert sorted(path.name for path in folder.iterdir()) == ["order.json", "run.sh"]
    script = (folder / "run.sh").read_text()
    assert "--nproc-per-node=2" in script
    assert subprocess.run(["sh", "-n", str(folder / "run.sh")], check=False).returncode == 0


def test_a_script_for_several_nodes(run: Run, tiny: str, tmp_path: Path) -> None:
    found = run(f"run {tiny} --strategy dp=2 --dry-run -o {tmp_path / 'dry'} --nproc 1")
    assert found.code == 0, found.err
    assert "--nnodes=2" in (tmp_path / "dry" / "run.sh").read_text()
    assert run(f"run {tiny} --strategy dp=2 --dry-run -o {tmp_path / 'dry'} --nproc 3").refused(
        "divisor of 2"
    )
