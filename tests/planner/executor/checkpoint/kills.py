"""Kills workers of a run at random moments, many while a checkpoint is written; it must end as if nothing had been.

`python -m tests.planner.executor.checkpoint.kills 3 10` does so in three runs of ten kills each.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.planner.executor.launch.processes import ROOT, processes_of

STEPS: Final = 24
EVERY: Final = 2
LATEST_S: Final = 9.0
"""From the start of the workers to the middle of training."""
PROGRAM: Final = """
import json, sys
from planner.executor import run_order
from tests.planner.executor.orders import tiny_order
strategy, devices, log_dir, folder, steps, every, restarts = json.loads(sys.argv[1])
options = {"checkpoint": folder, "every": every} if folder else {}
order = tiny_order(strategy, devices=devices, steps=steps, restarts=restarts, log_dir=log_dir, lr=3e-3, **options)
report = run_order(order)
print(json.dumps(report.to_json()))
"""


@dataclass(frozen=True)
class Outcome:
    """A run that ended, and how often its workers were killed."""

    losses: list[float]
    steps: list[int]
    positions: list[int]
    kills: int
    attempts: int


class Disturbed:
    """A run in a process of its own."""

    def __init__(self, strategy: str, devices: int, folder: Path, *, checkpoint: bool) -> None:
        self.folder = folder
        self.log_dir = folder / "log"
        self.checkpoints = folder / "checkpoints"
        place = str(self.checkpoints) if checkpoint else ""
        given = [strategy, devices, str(self.log_dir), place, STEPS, EVERY, 1000 if checkpoint else 0]
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(given)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    @property
    def is_over(self) -> bool:
        """Whether it ended."""
        return self._process.poll() is not None

    def workers(self) -> list[int]:
        """Its worker processes."""
        return [each for each in processes_of(self.log_dir) if each != self._process.pid]

    def is_writing(self) -> bool:
        """Whether a checkpoint is half written."""
        return any(self.checkpoints.glob("*.partial-*"))

    def outcome(self, kills: int, timeout_s: float) -> Outcome:
        """What it said at its end."""
        try:
            text, _ = self._process.communicate(timeout=timeout_s)
        finally:
            for process in [self._process.pid, *self.workers()]:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        report: dict[str, Any] = json.loads(text)
        curve = report["curve"]
        return Outcome(
            losses=[step["loss"] for step in curve],
            steps=[step["step"] for step in curve],
            positions=[step["next_sample"] for step in curve],
            kills=kills,
            attempts=report["attempts"],
        )


def disturbed(strategy: str, devices: int, folder: Path, *, kills: int, seed: int) -> Outcome:
    """A run whose workers are killed so many times, if it lasts as long."""
    draw = random.Random(seed)
    run = Disturbed(strategy, devices, folder, checkpoint=True)
    done = 0
    while done < kills and not run.is_over:
        known = set(run.workers())
        if len(known) < devices:
            time.sleep(0.05)
            continue
        _wait_for_the_moment(run, draw)
        alive = [each for each in run.workers() if each in known]
        if alive:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(alive), signal.SIGKILL)
                done += 1
            time.sleep(0.5)
    return run.outcome(done, timeout_s=300.0)


def _wait_for_the_moment(run: Disturbed, draw: random.Random) -> None:
    """Some moment, or one within the writing of a checkpoint."""
    if draw.random() < 0.5:
        time.sleep(draw.uniform(0.0, LATEST_S))
        return
    deadline = time.monotonic() + 3 * LATEST_S
    while time.monotonic() < deadline and not run.is_over and not run.is_writing():
        time.sleep(0.005)
    time.sleep(draw.uniform(0.0, 0.3))


def undisturbed(strategy: str, devices: int, folder: Path) -> Outcome:
    """The same run left alone, without checkpoints."""
    return Disturbed(strategy, devices, folder, checkpoint=False).outcome(0, timeout_s=300.0)


def main() -> None:
    """As many runs and kills as the command line says."""
    runs, kills = int(sys.argv[1]), int(sys.argv[2])
    strategies = (("dp=2,zero=1", 2), ("tp=2", 2), ("pp=2,stages=3+1", 2), ("dp=2,zero=3", 2))
    for seed in range(runs):
        strategy, devices = strategies[seed % len(strategies)]
        with tempfile.TemporaryDirectory() as folder:
            whole = undisturbed(strategy, devices, Path(folder) / "whole")
            found = disturbed(strategy, devices, Path(folder) / "killed", kills=kills, seed=seed)
        is_same = found.losses == whole.losses and found.positions == whole.positions
        worst = max((abs(a - b) for a, b in zip(found.losses, whole.losses, strict=False)), default=0.0)
        sys.stdout.write(
            f"{strategy}: {found.kills} kills, {found.attempts} attempts, {len(found.losses)} steps, "
            f"{'same' if is_same else 'OTHER'} losses, largest difference {worst:.1e}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
