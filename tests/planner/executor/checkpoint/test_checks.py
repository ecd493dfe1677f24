"""Options and folders that contradict each other are refused before anything is launched."""

from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import BadInput
from planner.executor.checkpoint.checks import check_checkpoints
from planner.executor.checkpoint.facts import facts_of
from planner.executor.checkpoint.store import MANIFEST, Manifest, file_of, folder_of
from planner.executor.request import RunOrder
from tests.planner.executor.orders import tiny_order


def kept(parent: Path, *steps: int, **job: Any) -> None:
    """Checkpoints of one file each, of a run with this job."""
    for step in steps:
        folder = folder_of(parent, step)
        folder.mkdir(parents=True)
        (folder / "__0_0.distcp").write_bytes(b"weights")
        files = {"__0_0.distcp": file_of(folder / "__0_0.distcp")}
        Manifest(step, 8 * step, 7, files, facts_of(tiny_order(job=job))).write(folder)


def order(**options: Any) -> RunOrder:
    """A run of ten steps."""
    return tiny_order(**{"steps": 10, **options})


def refused(words: str, **options: Any) -> None:
    """These options are refused in these words."""
    with pytest.raises(BadInput, match=words):
        check_checkpoints(order(**options))


def test_auto_needs_a_folder() -> None:
    refused("give their folder with --checkpoint DIR", resume="auto")


def test_a_folder_of_another_run_is_not_written_to(tmp_path: Path) -> None:
    kept(tmp_path, 4)
    refused("holds checkpoints up to step 4; go on with --resume auto", checkpoint=str(tmp_path))
    check_checkpoints(order(checkpoint=str(tmp_path), resume="auto"))
    check_checkpoints(order(checkpoint=str(tmp_path), resume=str(tmp_path)))


def test_a_later_checkpoint_of_the_folder_would_be_taken_after_a_restart(tmp_path: Path) -> None:
    kept(tmp_path, 4, 6)
    first = str(folder_of(tmp_path, 4))
    refused("holds step 6, after step 4 of --resume", checkpoint=str(tmp_path), resume=first)
    check_checkpoints(order(resume=first))


def test_adapters_that_would_count_otherwise_are_refused(tmp_path: Path) -> None:
    kept(tmp_path, 4, options={"job.trainable": "lora:r=4"})
    own = tiny_order(
        job={"options": {"job.trainable": "lora:r=4"}}, lora_alpha=16.0, steps=10, resume=str(tmp_path)
    )
    with pytest.raises(BadInput, match="multiplied by 1, and this run's by 4; give --lora-alpha 4"):
        check_checkpoints(own)
    refused("is of job.trainable=lora:r=4, and the plan of all", resume="auto", checkpoint=str(tmp_path))


def test_a_broken_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    kept(tmp_path, 4)
    (folder_of(tmp_path, 4) / MANIFEST).unlink()
    refused("holds no good checkpoint: step-000000004: no manifest.json", resume=str(tmp_path))
    refused("holds no good checkpoint", resume=str(tmp_path / "nowhere"))


def test_states_of_another_optimizer_are_refused(tmp_path: Path) -> None:
    kept(tmp_path, 4, optimizer="sgd")
    refused("holds states of optimizer sgd, and the plan trains with adamw", resume=str(tmp_path))


def test_a_run_that_is_over_has_nothing_left(tmp_path: Path) -> None:
    kept(tmp_path, 10)
    refused("is at step 10, and --steps 10 ends there; give more --steps", resume=str(tmp_path))


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused("cannot be written", checkpoint=str(tmp_path / "file"))
