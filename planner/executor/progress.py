"""Where each rank is: its step and phase, and whether it waits for others. Tells a rank that hangs from those it keeps.

A thread of every rank leaves signs in the run's folder. Ranks that wait for each other all end
with the same time-out; the one that they wait for is the one that does not wait itself, or whose signs have stopped.
"""

import json
import linecache
import mmap
import re
import struct
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

FOLDER: Final = "alive"
MOST_S: Final = 10.0
LEAST_S: Final = 0.25
SIGNS_A_TIMEOUT: Final = 8.0
BEAT_S: Final = 0.05
"""Between two beats, which tell a killed process from those that are ended after it."""
BEAT: Final = struct.Struct("<d")
SLOT_BYTES: Final = 1024
SILENT_S: Final = 2.0
"""A rank without a beat for so long is stopped, or stuck where no other thread of it runs."""
WAITING: Final = re.compile(
    r"\.wait\(|all_reduce|all_gather|reduce_scatter|broadcast|barrier|recv\(|send\(|synchronize"
)


@dataclass(frozen=True, slots=True)
class Sign:
    """One rank's latest sign."""

    rank: int
    step: int
    phase: str
    since_s: float
    """When the phase began, in seconds since 1970."""
    at_s: float
    """When it was last alive."""
    every_s: float
    is_waiting: bool
    where: str


class Progress:
    """Where this rank is; `enter` is called by the rank, `start` lets the thread write.

    Signs are written into memory that is mapped to a file: they cost a step nothing, and outlive a killed process.
    """

    def __init__(self, run_dir: Path, rank: int, attempt: int) -> None:
        self.rank = rank
        self.attempt = attempt
        self.step = 0
        self.phase = "start"
        self._since_s = time.time()
        self._every_s = LEAST_S
        self._path = folder_of(run_dir, attempt) / f"rank-{rank}"
        self._map: mmap.mmap | None = None
        self._number = 0
        self._lock = threading.Lock()
        self._main = threading.get_ident()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="progress", daemon=True)

    def enter(self, phase: str, step: int | None = None) -> None:
        """A new phase begins."""
        self.phase, self._since_s = phase, time.time()
        if step is not None:
            self.step = step
        self._write(None)

    def start(self, timeout_s: float) -> None:
        """Begin to write: several signs with the main thread's place in the time that ranks wait for each other."""
        self._every_s = min(max(timeout_s / SIGNS_A_TIMEOUT, LEAST_S), MOST_S)
        if self._map is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_bytes(bytes(2 * SLOT_BYTES))
            with self._path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 2 * SLOT_BYTES)
            self._thread.start()

    def stop(self) -> None:
        """Write a last sign and no more."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _write_all(self) -> None:
        looked_s = 0.0
        while not self._end.wait(BEAT_S):
            now_s = time.time()
            if now_s - looked_s >= self._every_s:
                looked_s = now_s
                self._write(sys._current_frames().get(self._main))
            elif self._map is not None:
                self._map[: BEAT.size] = BEAT.pack(now_s)

    def _write(self, frame: FrameType | None) -> None:
        if self._map is None:
            return
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
        with self._lock:
            # Two places in turn: what a process killed meanwhile leaves half written is not the only one.
            self._number += 1
            line = json.dumps(asdict(sign) | {"number": self._number}).encode()[: SLOT_BYTES - BEAT.size]
            begin = BEAT.size + self._number % 2 * (SLOT_BYTES - BEAT.size)
            self._map[begin : begin + SLOT_BYTES - BEAT.size] = line.ljust(SLOT_BYTES - BEAT.size)
            self._map[: BEAT.size] = BEAT.pack(sign.at_s)


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
    """The latest sign of every rank, by rank."""
    found = [_latest(path) for path in folder_of(run_dir, attempt).glob("rank-*")]
    return sorted((sign for sign in found if sign is not None), key=lambda sign: sign.rank)


def _latest(path: Path) -> Sign | None:
    try:
        content = path.read_bytes()
        (beat_s,) = BEAT.unpack(content[: BEAT.size])
    except (OSError, struct.error):
        return None
    slots = (content[BEAT.size : SLOT_BYTES], content[SLOT_BYTES : 2 * SLOT_BYTES - BEAT.size])
    documents = [document for document in map(_document, slots) if document is not None]
    if not documents:
        return None
    latest = max(documents, key=lambda document: int(document["number"]))
    return replace(Sign(**{each.name: latest[each.name] for each in fields(Sign)}), at_s=beat_s)


def _document(slot: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(slot.rstrip(b"\0 "))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def last_attempt(run_dir: Path) -> int:
    """The latest attempt of which ranks left signs."""
    numbers = [int(path.name.rpartition("-")[2]) for path in (run_dir / FOLDER).glob("attempt-*")]
    return max(numbers, default=0)


def hung_rank(signs: Collection[Sign], timed_out: Collection[int]) -> tuple[Sign, str] | None:
    """The rank that the others waited for, and what it did; None where all waited.

    `timed_out` are ranks that gave up waiting.
    """
    latest = max((sign.at_s for sign in signs), default=0.0)
    suspects = [sign for sign in signs if sign.rank not in timed_out]
    silent = [sign for sign in suspects if latest - sign.at_s > SILENT_S]
    busy = [sign for sign in suspects if not sign.is_waiting]
    if silent:
        found = min(silent, key=lambda sign: sign.at_s)
        return found, f"gave no sign of life for {latest - found.at_s:.0f} s"
    if busy:
        found = min(busy, key=lambda sign: (sign.step, sign.since_s))
        return found, f"was busy for {latest - found.since_s:.0f} s in {found.where}"
    return None
