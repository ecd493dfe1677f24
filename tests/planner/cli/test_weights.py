"""`planner run --weights`: what is refused before anything starts, and what a dry run writes down."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.planner.executor.orders import LLAMA

pytest.importorskip("torch")

JOB = [
    "--cluster",
    "cpu:2",
    "--seq-len",
    "16",
    "--global-batch",
    "8",
    "--precision",
    "fp32",
    "--engine",
    "torch",
    "--strategy",
    "tp=2",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a config alone."""
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text(json.dumps(LLAMA))
    return tmp_path / "llama"


def test_folders_are_written_down_as_they_hold_everywhere(
    run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    words = [
        "--weights",
        "llama",
        "--save-weights",
        "tuned",
        "--save-dtype",
        "bf16",
        "--dry-run",
        "-o",
        "dry",
    ]
    assert run(["run", "--model", "llama", *JOB, *words]).code == 0
    options = json.loads((folder.parent / "dry" / "order.json").read_text())["options"]
    assert (options["weights"], options["save_weights"]) == (str(folder), str(folder.parent / "tuned"))
    assert (options["save_dtype"], options["save_shard_bytes"]) == ("bf16", 5_000_000_000)


def test_what_cannot_be_used_is_refused(run: Any, folder: Path) -> None:
    model = ["run", "--model", str(folder), *JOB]
    assert run([*model, "--save-dtype", "bf16"]).refused("--save-weights DIR")
    assert run([*model, "--save-weights", str(folder.parent / "new")]).refused("--weights DIR")
    assert run([*model, "--weights", str(folder / "config.json")]).refused("is no folder")
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert run([*model, "--weights", str(folder)]).refused("model.safetensors", "fetch it again")
