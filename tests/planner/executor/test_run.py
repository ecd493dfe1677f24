"""A run from order to report through real processes: steps, memory, resumption, traces, failures, verification."""

import gc
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from planner.errors import RunFailed
from planner.executor import run_order, verify_order
from planner.executor.run import FOLDER_PREFIX, remove_stale_folders
from tests.planner.executor.orders import tiny_order

# The elastic agent leaves its log files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    yield
    gc.collect()


def test_a_run_reports_every_step_and_every_rank(tmp_path: Path) -> None:
    events = []
    order = tiny_order("pp=2,stages=3+1", devices=2, steps=3, profile=True, log_dir=str(tmp_path))
    report = run_order(order, events.append)
    values = json.loads(json.dumps(report.to_json()))
    assert [step["step"] for step in values["curve"]] == [1, 2, 3]
    assert [event["event"] for event in events] == ["step"] * 3 + ["end"]
    assert len(values["measured"]["memory_by_rank"]) == 2
    assert all(value > 0 for value in values["measured"]["memory_by_rank"])
    assert [stage["stage"] for stage in values["parts"]["stages"]] == [0, 1]
    assert values["end"]["position"] == {"next_sample": 3 * 8}
    assert values["predicted"]["step_s"] == pytest.approx(
        values["ratio"]["step_s"] * values["measured"]["step_s"]
    )
    times = values["parts"]["time"]
    assert times["communication"]["measured_s"] > 0
    for rank in (0, 1):
        trace = json.loads((tmp_path / f"trace_rank{rank}.json").read_text())
        assert any("gloo" in str(event.get("name")) for event in trace["traceEvents"])


def test_a_run_goes_on_with_the_data_where_one_stopped() -> None:
    whole = run_order(tiny_order("", steps=3, lr=1e-12, weight_decay=0.0))
    rest = run_order(tiny_order("", steps=1, lr=1e-12, weight_decay=0.0, first_sample=2 * 8))
    # With a learning rate of nothing, the loss of the third step depends on its data alone.
    assert rest.steps[0].loss == pytest.approx(whole.steps[2].loss, rel=1e-6)


def test_the_loss_falls() -> None:
    report = run_order(tiny_order("dp=2", devices=2, steps=8, lr=0.02, data=f"{__name__}:same_sample"))
    assert report.steps[-1].loss < 0.7 * report.steps[0].loss


def same_sample() -> Iterator[list[int]]:
    """One sample to be learnt by heart."""
    yield list(range(17))


def bad_samples() -> Iterator[list[int]]:
    """A sample of the wrong length."""
    yield [1, 2, 3]


def test_a_failing_rank_says_why() -> None:
    with pytest.raises(RunFailed, match=r"a sample holds 3 tokens; give sequence \+ 1 = 17 tokens"):
        run_order(tiny_order("", steps=1, data=f"{__name__}:bad_samples"))


def fails_once() -> Iterator[list[int]]:
    """Samples that are there in the second attempt only."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise OSError("the disk is away for a moment")
    while True:
        yield list(range(17))


def test_a_restart_begins_again() -> None:
    report = run_order(tiny_order("", steps=2, restarts=1, data=f"{__name__}:fails_once"))
    assert report.attempts == 2
    assert [record.step for record in report.steps] == [1, 2]


def test_nothing_is_left_of_a_run() -> None:
    run_order(tiny_order("", steps=1))
    assert not list(Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}{os.getpid()}-*"))


def test_a_log_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        run_order(tiny_order(steps=1, log_dir=str(tmp_path / "file")))


def test_folders_of_killed_launchers_are_removed(tmp_path: Path) -> None:
    # Process numbers end at 2**22 on Linux, so this one cannot run.
    stale = tmp_path / f"{FOLDER_PREFIX}{2**22 + 1}-abc"
    own = tmp_path / f"{FOLDER_PREFIX}1-abc"
    stale.mkdir()
    own.mkdir()
    remove_stale_folders(tmp_path)
    assert not stale.exists()
    assert own.exists()


def test_a_layout_is_verified() -> None:
    found = verify_order(tiny_order("tp=2", devices=2, lr=0.5))
    assert found.verified
    assert 0.0 < found.gradients < 1e-5
