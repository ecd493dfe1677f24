"""Clocks: of the wall, of this process's threads, of an accelerator's own events."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cost_models.profiler.case import Clock, Fresh, Work


@dataclass(frozen=True, slots=True)
class WallClock:
    """Seconds that pass: what a step takes where several threads work at once."""

    name: str = "wall"

    def samples(self, work: Work, calls: int, repeats: int) -> tuple[float, ...]:
        """See Clock."""
        return _timed(time.perf_counter, work, calls, repeats)

    def now(self) -> float:
        """See Clock."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class ProcessorClock:
    """Seconds of the processor that one thread takes: other programs on the machine do not lengthen them."""

    name: str = "processor"

    def samples(self, work: Work, calls: int, repeats: int) -> tuple[float, ...]:
        """See Clock."""
        return _timed(time.process_time, work, calls, repeats)

    def now(self) -> float:
        """See Clock."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class EventClock:
    """An accelerator's events around the calls, so that launches run ahead as they do in a step."""

    name: str = "events"

    def samples(self, work: Work, calls: int, repeats: int) -> tuple[float, ...]:
        """See Clock."""
        found = []
        for _ in range(repeats):
            start, stop = _event(), _event()
            one, times = (work.prepare(), 1) if isinstance(work, Fresh) else (work, calls)
            torch.cuda.synchronize()
            start.record()
            for _ in range(times):
                one()
            stop.record()
            torch.cuda.synchronize()
            found.append(start.elapsed_time(stop) * 1e-3 / times)
        return tuple(found)

    def now(self) -> float:
        """See Clock."""
        return time.monotonic()


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def clock_of(device: torch.device, threads: int) -> Clock:
    """Events on an accelerator; on a CPU the processor's seconds of one thread, the wall's of several."""
    if device.type == "cuda":
        return EventClock()
    return ProcessorClock() if threads == 1 else WallClock()


def _timed(read: Callable[[], float], work: Work, calls: int, repeats: int) -> tuple[float, ...]:
    found = []
    for _ in range(repeats):
        one, times = (work.prepare(), 1) if isinstance(work, Fresh) else (work, calls)
        start = read()
        for _ in range(times):
            one()
        found.append((read() - start) / times)
    return tuple(found)
