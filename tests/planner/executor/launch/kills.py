"""Kills launcher, worker or terminal of a real run at a random moment; nothing of it may be left.

`python -m tests.planner.executor.launch.kills 50` does so fifty times.
"""

import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from planner.executor.launch.environment import WORKER_MODULE
from tests.planner.executor.launch.processes import Terminal, processes_of, wait_for

VICTIMS = ("launcher", "launcher, kindly", "worker", "terminal")
LATEST_S = 8.0
"""From before the workers start to the middle of training on an idle machine."""
GONE_S = 40.0


def kill_at_random(seed: int, run_dir: Path) -> str:
    """Start a run, kill something; what was killed when. Raises AssertionError where a process is left."""
    draw = random.Random(seed)
    victim, delay_s = draw.choice(VICTIMS), draw.uniform(0.2, LATEST_S)
    terminal = Terminal(run_dir, WORKER_MODULE)
    what = f"seed {seed}: {victim} after {delay_s:.1f} s"
    try:
        time.sleep(delay_s)
        strike(terminal, victim, run_dir, draw)
        assert wait_for(lambda: not processes_of(run_dir), GONE_S), (
            f"{what}: {processes_of(run_dir)} still run"
        )
    finally:
        for process in [terminal.pid, *processes_of(run_dir)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        terminal.wait(GONE_S)
    return what


def strike(terminal: Terminal, victim: str, run_dir: Path, draw: random.Random) -> None:
    """Kill the victim; a worker only where one runs, else the launcher."""
    workers = sorted(set(processes_of(run_dir)) - {terminal.pid})
    if victim == "terminal":
        terminal.hang_up()
    elif victim == "worker" and workers:
        with suppress(ProcessLookupError):
            os.kill(draw.choice(workers), signal.SIGKILL)
    else:
        os.kill(terminal.pid, signal.SIGTERM if "kindly" in victim else signal.SIGKILL)


def main() -> None:
    """As many kills as the command line says."""
    for seed in range(int(sys.argv[1])):
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(kill_at_random(seed, Path(folder)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
