"""A cancelled run has its final state in bounded time, whatever its launcher does; its job is asked on to end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.runs import supervisor
from api.runs.folder import RunFolder
from api.runs.processes import processes_of_run
from tests.api.runs.conftest import STUB, until_true

CANCEL_S, END_JOB_S = 4.0, 2.0
PROGRAM = f"""
import sys
from pathlib import Path
from api.runs import supervisor
supervisor.CANCEL_S, supervisor.END_JOB_S, supervisor.AGAIN_S, supervisor.KILL_S = {CANCEL_S}, {END_JOB_S}, 0.5, 1.0
sys.exit(supervisor.main(Path(sys.argv[1])))
"""


@contextmanager
def supervised(tmp_path: Path, story: str) -> Iterator[RunFolder]:
    """A run of a launcher that is told by a story of stub_run.py, under a supervisor with short times."""
    folder = RunFolder(tmp_path / "run_x")
    folder.files.mkdir(parents=True)
    (folder.path / "plan.json").write_text(
        json.dumps({"request": {}, "result": {"best": {"strategy": {}}}}), encoding="utf-8"
    )
    plan, files = str(folder.path / "plan.json"), str(folder.files)
    command = [sys.executable, "-S", "-E", str(STUB), story, "run", plan, "--log-dir", files]
    folder.write("run.json", {"run_id": "run_x", "launcher": "slurm", "grace_s": 60.0, "command": command})
    environment = {**os.environ, "STUB_FOLDER": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder.path)], env=environment)
    try:
        until_true((tmp_path / "waits").exists)
        yield folder
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


@pytest.mark.parametrize(("story", "state"), [("unending", "failed"), ("stubborn", "cancelled")])
def test_the_end_comes_in_time_and_says_what_is_left(tmp_path: Path, story: str, state: str) -> None:
    with supervised(tmp_path, story) as folder:
        asked_s = time.monotonic()
        folder.cancel.touch()
        until_true(lambda: folder.read("state.json").get("ended_at"))
        took_s = time.monotonic() - asked_s
        found = folder.read("state.json")
        assert found["state"] == state
        # Twice the limit is still less than the stub's own 300 s, however busy the machine is.
        assert took_s < 2 * CANCEL_S + 5
        if story == "unending":
            assert found["failure_code"] == "cancel_failed"
            assert (
                "may still run and is asked to end again; job 7 is still running" in found["failure_detail"]
            )
            (tmp_path / "let-go").touch()
            until_true((tmp_path / "job-ended").exists)
            until_true(lambda: folder.read("swept.json"))
    assert (tmp_path / "job-ended").exists()
    assert not processes_of_run("run_x")


def test_the_times_of_a_cancel_fit_into_what_is_promised() -> None:
    # The server looks every 0.3 s when it is asked and when it has ended, the supervisor every 0.1 s, and what
    # outlives its grace is killed for KILL_S at most beside the launcher's own time.
    grace_s = supervisor.CANCEL_S - supervisor.END_JOB_S
    assert 2 * 0.3 + supervisor.POLL_S + grace_s + supervisor.END_JOB_S <= 30.0
    assert supervisor.KILL_S < supervisor.END_JOB_S
