"""What ends a run is named with rank, step and phase, and a run goes on from its last good checkpoint."""

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from planner.errors import RunFailed
from planner.executor import run_order
from planner.executor.checkpoint.store import list_checkpoints
from planner.executor.request import order_of_document
from tests.planner.executor import faults
from tests.planner.executor.orders import tiny_order
from tests.planner.executor.ranks import run_ranks

# The elastic agent leaves its log files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FAULTS = faults.__name__


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    yield
    gc.collect()


def failure(folder: Path, strategy: str = "", devices: int = 1, **options: Any) -> RunFailed:
    """How a run of eight steps fails that writes a checkpoint every second step."""
    options = {"steps": 8, "checkpoint": str(folder), "every": 2} | options
    with pytest.raises(RunFailed) as caught:
        run_order(tiny_order(strategy, devices=devices, **options))
    return caught.value


def losses(rank: int, world: int, document: dict[str, Any]) -> list[float]:
    """Losses of a run that nobody disturbs."""
    from planner.executor.step import Trainer

    order = order_of_document(document)
    trainer = Trainer(order, torch.device("cpu"))
    return [trainer.train_step().loss for _ in range(order.options.steps)]


def last_step(folder: Path) -> int:
    """Step of the newest checkpoint, which must be valid, like all others."""
    entries = list_checkpoints(folder)
    assert all(entry.is_valid for entry in entries)
    return entries[-1].step


def test_a_killed_worker_loses_no_step_and_no_sample(tmp_path: Path) -> None:
    options = {"steps": 9, "every": 2, "checkpoint": str(tmp_path), "restarts": 3}
    order = tiny_order("dp=2,zero=1", devices=2, data=f"{FAULTS}:kills_twice", **options)
    report = run_order(order)
    assert report.attempts == 3
    assert [step.step for step in report.steps] == list(range(1, 10))
    assert [step.next_sample for step in report.steps] == [8 * step for step in range(1, 10)]
    told = report.to_json()["restarts"]
    assert isinstance(told, list)
    assert [(restart["rank"], restart["kind"], restart["step"]) for restart in told] == [
        (1, "killed", 5),
        (0, "killed", 8),
    ]
    quiet = tiny_order("dp=2,zero=1", devices=2, steps=9, data=f"{FAULTS}:quiet")
    undisturbed = run_ranks(losses, 2, quiet.to_json())[0]
    assert [step.loss for step in report.steps] == undisturbed


@pytest.mark.system
@pytest.mark.parametrize(
    ("data", "words"),
    [("hangs", r"was busy for \d+ s in hangs \(executor/faults.py:\d+\)"), ("stops", "gave no sign of life")],
)
def test_a_hung_rank_is_named(data: str, words: str, tmp_path: Path) -> None:
    found = failure(tmp_path, "dp=2", 2, data=f"{FAULTS}:{data}", timeout_s=4.0)
    assert (found.rank, found.at.kind, found.at.step, found.at.phase) == (1, "hung", 5, "data")
    assert re.search(f"rank 1 hung: it {words}.* while rank 0 waited for it in vain", str(found)), str(found)
    # What the stopped rank was writing is lost with it.
    assert last_step(tmp_path) in (2, 4)
    assert str(found).endswith("go on with --resume auto")


@pytest.mark.system
def test_a_lost_loss_ends_the_run(tmp_path: Path) -> None:
    found = failure(tmp_path, lr=1e12, max_norm=None, restarts=2)
    assert found.at.kind == "loss_not_finite"
    assert "lower --lr" in str(found)


@pytest.mark.system
def test_a_full_disk_ends_the_run(tmp_path: Path) -> None:
    run_order(tiny_order("", steps=2, data=f"{FAULTS}:quiet", checkpoint=str(tmp_path)))
    found = failure(tmp_path, data=f"{FAULTS}:fills_the_disk", restarts=2, every=4, resume="auto")
    assert found.at.kind == "disk_full"
    assert "the checkpoint of step 4 at" in str(found)
    assert "free some space" in str(found)
    assert last_step(tmp_path) == 2


@pytest.mark.system
def test_data_that_ends_leaves_a_checkpoint_of_the_last_whole_step(tmp_path: Path) -> None:
    found = failure(tmp_path, "dp=2", 2, data=f"{FAULTS}:ends", epochs=1, every=100)
    assert (found.at.kind, found.at.step) == ("data_exhausted", 5)
    assert "end after 36; give more data, more --epochs, or fewer --steps" in str(found)
    assert last_step(tmp_path) == 4
    report = run_order(
        tiny_order("", steps=8, data=f"{FAULTS}:ends", checkpoint=str(tmp_path), resume="auto")
    )
    assert [step.step for step in report.steps] == [5, 6, 7, 8]


@pytest.mark.system
def test_running_out_of_memory_says_what_to_change(tmp_path: Path) -> None:
    found = failure(tmp_path, "mbs=1", factory=f"{FAULTS}:hungry", restarts=2)
    assert (found.at.kind, found.at.step, found.at.phase) == ("out_of_memory", 5, "forward and backward")
    assert "predicted were" in str(found)
    assert "change to " in str(found)
    assert last_step(tmp_path) == 4


def test_a_function_that_ends_the_process_is_named(tmp_path: Path) -> None:
    found = failure(tmp_path, data=f"{FAULTS}:leaves")
    assert "ended by sys.exit(0) in a function of the run" in str(found)
    assert last_step(tmp_path) == 4
