"""A local launch names the first rank that fails, restarts when asked, and leaves no process behind."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from planner.errors import RunFailed
from planner.executor.launch import launch_local
from tests.planner.executor.launch.processes import STUB, Terminal, processes_of, wait_for
from tests.planner.executor.orders import tiny_order

SECONDS = 20.0

# The elastic agent leaves its log files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def launch(run_dir: Path, mode: str, **options: object) -> None:
    (run_dir / "mode").write_text(mode)
    try:
        launch_local(tiny_order("dp=2", devices=2, **options), Path("no-order"), run_dir, STUB)
    finally:
        gc.collect()


def test_workers_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    launch(tmp_path, "ok")
    threads = max(len(os.sched_getaffinity(0)) // 2, 1)
    names = sorted(path.name for path in tmp_path.glob("rank*"))
    assert names == [f"rank0-0-{threads}", f"rank1-0-{threads}"]


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("raise", "rank 1 failed with exit code 1: .*a message of rank 1"),
        ("exit", "rank 1 failed with exit code 7: last words of rank 1"),
        ("kill", "rank 1 was ended by SIGKILL; it may have run out of memory"),
    ],
)
def test_the_first_failing_rank_is_named(tmp_path: Path, mode: str, words: str) -> None:
    with pytest.raises(RunFailed, match=words):
        launch(tmp_path, mode)
    assert not processes_of(tmp_path)


def test_a_restart_runs_all_ranks_again(tmp_path: Path) -> None:
    launch(tmp_path, "once", restarts=1)
    assert {path.name[:7] for path in tmp_path.glob("rank*")} == {"rank0-0", "rank0-1", "rank1-0", "rank1-1"}


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT", "hang-up"])
def test_no_process_outlives_its_launcher(tmp_path: Path, how: str) -> None:
    (tmp_path / "mode").write_text("sleep")
    terminal = Terminal(tmp_path)
    try:
        assert wait_for(lambda: len(list(tmp_path.glob("rank*"))) == 2, SECONDS)
        if how == "hang-up":
            terminal.hang_up()
        else:
            os.kill(terminal.pid, signal.Signals[how])
        assert terminal.wait(SECONDS)
        assert wait_for(lambda: not processes_of(tmp_path), SECONDS)
    finally:
        for process in processes_of(tmp_path):
            os.kill(process, signal.SIGKILL)


def test_a_worker_that_nobody_started_says_how() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "planner.executor.worker", "order.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("a worker is one rank of a run: start all of them with the run.sh")
