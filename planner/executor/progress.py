"""Where each rank is: its step and phase, and whether it waits for others. Tells a rank that hangs from those it keeps.

A thread of every rank writes a line into the run's folder from time to time. Ranks that wait for each other all end
with the same time-out; the one that they wait for is the one that does not wait itself, or whose lines have stopped.
"""

import json
import linecache
import re
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import FrameType
from typing import Final

FOLDER: Final = "alive"
MOST_S: Final = 10.0
LEAST_S: Final = 0.25
LINES_A_TIMEOUT: Final = 8.0
SILENT_LINES: Final = 3.0
"""A rank that missed so many lines is silent: stopped, or stuck where no other thread of it runs."""
WAITING: Final = re.compile(
    r"\.wait\(|all_reduce|all_gather|reduce_scatter|broadcast|barrier|recv\(|send\(|synchronize"
)


@dataclass(frozen=True, slots=True)
class Sign:
    """One rank's latest line."""

    rank: int
    step: int
    phase: str
    since_s: float
    """When the phase began, in seconds since 1970."""
    at_s: float
    """When the line was written."""
    every_s: float
    is_waiting: bool
    where: str


class Progress:
    """Where this rank is; `enter` is called by the rank, `start` lets the thread write."""

    def __init__(self, run_dir: Path, rank: int, attempt: int) -> None:
        self.rank = rank
        self.attempt = attempt
        self.step = 0
        self.phase = "start"
        self._since_s = time.time()
        self._every_s = LEAST_S
        self._path = folder_of(run_dir, attempt) / f"rank-{rank}.json"
        self._main = threading.get_ident()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="progress", daemon=True)

    def enter(self, phase: str, step: int | None = None) -> None:
        """A new phase begins."""
        self.phase, self._since_s = phase, time.time()
        if step is not None:
            self.step = step

    def start(self, timeout_s: float) -> None:
        """Begin to write lines: several in the time that ranks wait for each other."""
        self._every_s = min(max(timeout_s / LINES_A_TIMEOUT, LEAST_S), MOST_S)
        if not self._thread.is_alive():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._thread.start()

    def stop(self) -> None:
        """Write a last line and no more."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _write_all(self) -> None:
        self._write()
        while not self._end.wait(self._every_s):
            self._write()
        self._write()

    def _write(self) -> None:
        frame = sys._current_frames().get(self._main)
        sign = Sign(
            self.rank,
            self.step,
            self.phase,
            self._since_s,
            time.time(),
            self._every_s,
            is_waiting=frame is not None and is_waiting(frame),
            where=place_of(frame) if frame is not None else "",
        )
        partial = self._path.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(asdict(sign)) + "\n", encoding="utf-8")
            partial.rename(self._path)
        except OSError:  # a full disk must not end a run that writes little else
            return


def folder_of(run_dir: Path, attempt: int) -> Path:
    """Where the ranks of an attempt write."""
    return run_dir / FOLDER / f"attempt-{attempt:06d}"


def is_waiting(frame: FrameType) -> bool:
    """Whether a thread that stands here waits for other ranks: inside torch.distributed, or at a line that waits."""
    if "torch/distributed/" in frame.f_code.co_filename.replace("\\", "/"):
        return True
    return bool(WAITING.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)))


def place_of(frame: FrameType) -> str:
    """The place in words: function, file and line."""
    path = Path(frame.f_code.co_filename)
    return f"{frame.f_code.co_name} ({'/'.join(path.parts[-2:])}:{frame.f_lineno})"


def read_signs(run_dir: Path, attempt: int) -> list[Sign]:
    """The latest line of every rank, by rank."""
    found = []
    for path in folder_of(run_dir, attempt).glob("rank-*.json"):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            found.append(Sign(**{each.name: document[each.name] for each in fields(Sign)}))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return sorted(found, key=lambda sign: sign.rank)


def last_attempt(run_dir: Path) -> int:
    """The latest attempt of which ranks left lines."""
    numbers = [int(path.name.rpartition("-")[2]) for path in (run_dir / FOLDER).glob("attempt-*")]
    return max(numbers, default=0)


def hung_rank(signs: Collection[Sign], timed_out: Collection[int]) -> tuple[Sign, str] | None:
    """The rank that the others waited for, and what it did; None where all waited.

    `timed_out` are ranks that gave up waiting.
    """
    latest = max((sign.at_s for sign in signs), default=0.0)
    suspects = [sign for sign in signs if sign.rank not in timed_out]
    silent = [sign for sign in suspects if latest - sign.at_s > SILENT_LINES * sign.every_s]
    busy = [sign for sign in suspects if not sign.is_waiting]
    if silent:
        found = min(silent, key=lambda sign: sign.at_s)
        return found, f"gave no sign of life for {latest - found.at_s:.0f} s"
    if busy:
        found = min(busy, key=lambda sign: (sign.step, sign.since_s))
        return found, f"was busy for {latest - found.since_s:.0f} s in {found.where}"
    return None
