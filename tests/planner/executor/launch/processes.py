"""Starts launchers in processes of their own, and finds what is left of a run."""

import os
import pty
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
STUB = "tests.planner.executor.launch.stub_worker"
PROGRAM = """
import sys
from pathlib import Path
from planner.executor.launch import launch_local
from tests.planner.executor.orders import tiny_order
order = tiny_order("dp=2", devices=2, steps=1_000_000)
path = Path(sys.argv[1]) / "order.json"
order.write(path)
launch_local(order, path, Path(sys.argv[1]), {worker!r})
"""


class Terminal:
    """A launcher that leads the session of a terminal of its own."""

    def __init__(self, run_dir: Path, worker: str = STUB) -> None:
        command = [sys.executable, "-c", PROGRAM.format(worker=worker), str(run_dir)]
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execv(command[0], command)

    def hang_up(self) -> None:
        """Close the terminal, as a window that is closed does."""
        os.close(self._terminal)

    def wait(self, seconds: float) -> bool:
        """Whether the launcher ended in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return True
            time.sleep(0.05)
        return False


def processes_of(run_dir: Path) -> list[int]:
    """Processes whose command line names the run's folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(run_dir).encode() in command:
            found.append(int(entry.name))
    return found


def wait_for(condition: object, seconds: float) -> bool:
    """Whether a condition became true in time."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())
