"""Processes of this host: who one is, whether it lives, and every process of a run. The standard library alone.

A process belongs to a run if the run's id stands in its environment, or if it descends from the run's supervisor: so
neither a session of its own nor a changed environment hides one.
"""

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MARKER: Final = "PLANNER_RUN_ID"
REAPS: Final = "PLANNER_SUPERVISOR"
PROC: Final = Path("/proc")
PAUSE_S: Final = 0.05


def host_identity() -> str:
    """This host until it boots again; a container is a host of its own."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        space = (PROC / "self/ns/pid").stat().st_ino
    except OSError:
        boot, space = "unknown", 0
    return f"{socket.gethostname()}/{boot}/{space}"


def start_of(process: int) -> str | None:
    """When a process started (clock ticks since boot, proc(5)), which with its id is unique; None where it is gone."""
    fields = _stat(process)
    return None if fields is None or fields[0] in ("Z", "X") else fields[19]


def is_alive(process: int, start: str) -> bool:
    """Whether this very process still runs."""
    return start_of(process) == start


def processes_of_run(run_id: str, root: int | None = None) -> set[int]:
    """Live processes that carry the run's id, and all descendants of `root`; never `root` or this process."""
    entry = f"{MARKER}={run_id}".encode()
    found, parents = set(), {}
    for path in PROC.glob("[0-9]*"):
        process = int(path.name)
        fields = _stat(process)
        if fields is None or fields[0] in ("Z", "X"):
            continue
        parents[process] = int(fields[1])
        with suppress(OSError):
            if entry in (path / "environ").read_bytes().split(b"\0"):
                found.add(process)
    if root is not None:
        found |= _descendants(root, parents)
    return found - {os.getpid(), root}


def kill_run(run_id: str, seconds: float, root: int | None = None) -> bool:
    """Kill every process of a run until none is left; False where some outlive `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        left = processes_of_run(run_id, root)
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        reap()
        if not left:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_S)


def reap() -> None:
    """Take leave of ended processes that were given to this one, where it is a supervisor."""
    if os.environ.get(REAPS) is None:
        return
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _stat(process: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; the name before them may hold anything."""
    try:
        return (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _descendants(root: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    fresh = {root}
    while fresh:
        fresh = {process for process, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found
