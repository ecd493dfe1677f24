"""`planner checkpoint show`: steps, layouts, sizes, and what is wrong."""

import json
from pathlib import Path

from planner.executor.checkpoint.store import Manifest, file_of, folder_of
from tests.planner.cli.conftest import Run


def kept(parent: Path, step: int) -> Path:
    """A checkpoint of one file."""
    folder = folder_of(parent, step)
    folder.mkdir(parents=True)
    (folder / "__0_0.distcp").write_bytes(b"weights")
    files = {"__0_0.distcp": file_of(folder / "__0_0.distcp")}
    facts = {"model": "llama", "optimizer": "adamw", "strategy": {"tp": 2, "pp": 1, "dp": 4, "zero": 1}}
    Manifest(step, 8 * step, 7, files, facts).write(folder)
    return folder


def test_all_are_listed_and_the_last_good_one_is_named(run: Run, tmp_path: Path) -> None:
    first = kept(tmp_path, 2)
    (kept(tmp_path, 4) / "__0_0.distcp").write_bytes(b"weightz")
    found = run(f"checkpoint show {tmp_path} --json")
    assert found.code == 0, found.err
    values = json.loads(found.out)
    assert [(row["step"], row["valid"]) for row in values["checkpoints"]] == [(2, True), (4, False)]
    assert values["checkpoints"][0]["layout"] == "tp=2,dp=4,zero=1"
    assert values["checkpoints"][0]["bytes"] == 7
    assert values["checkpoints"][1]["problem"] == "__0_0.distcp does not have its checksum"
    assert values["last_good"] == str(first)
    # Sizes are as they should be, so a quick look does not find it.
    quick = json.loads(run(f"checkpoint show {tmp_path} --quick --json").out)
    assert quick["last_good"] == str(folder_of(tmp_path, 4))
    text = run(f"checkpoint show {tmp_path}").out
    assert "does not have" in text


def test_one_checkpoint_and_none(run: Run, tmp_path: Path) -> None:
    folder = kept(tmp_path, 2)
    assert json.loads(run(f"checkpoint show {folder} --json").out)["last_good"] == str(folder)
    (folder / "__0_0.distcp").unlink()
    assert run(f"checkpoint show {tmp_path}").code == 1
    assert run(f"checkpoint show {tmp_path / 'nowhere'}").refused("is no folder")


def test_options_of_checkpoints_need_a_folder(run: Run) -> None:
    plan = "run --model llama-3.2-1b --cluster cpu:1 --seq-len 64 --global-batch 1 --engine torch"
    assert run(f"{plan} --every 5").refused("give their folder with --checkpoint DIR")
