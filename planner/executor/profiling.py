"""`--profile`: a trace of the steady steps for Perfetto, one per rank, and the seconds that communication takes."""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from planner.executor.report import FIRST_STEADY
from planner.executor.request import RunOrder

MAX_PROFILED_STEPS: Final = 5
"""A trace of many steps is too large to look at."""
COMMUNICATION_PREFIXES: Final = ("gloo:", "nccl:", "ncclDevKernel", "ncclKernel")


class Profiler:
    """Records steps FIRST_STEADY to FIRST_STEADY + MAX_PROFILED_STEPS - 1 where the order asks for it."""

    def __init__(self, order: RunOrder, run_dir: Path) -> None:
        self._is_on = order.options.profile
        self._run_dir = run_dir
        self._first = min(FIRST_STEADY, order.options.steps)
        self._step = 0
        self._recorded = 0
        self._profile: Any = None
        self._seconds: list[float] = []
        self._summaries: list[dict[str, float]] = []

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish()

    def start_step(self) -> None:
        """Before a step."""
        self._step += 1
        if self._is_on and self._profile is None and self._step == self._first:
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._profile = profile(activities=activities)
            self._profile.start()

    def end_step(self) -> None:
        """After a step."""
        if self._profile is None or self._recorded >= MAX_PROFILED_STEPS:
            return
        self._recorded += 1
        if self._recorded == MAX_PROFILED_STEPS:
            self._finish()

    def summaries(self) -> list[dict[str, float]]:
        """Seconds a step of every rank: inside collectives and sends, and everything else. Empty without --profile."""
        return self._summaries

    def _finish(self) -> None:
        """Stop, write the trace, and share the seconds; collective, once."""
        if self._profile is None or self._summaries:
            return
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._run_dir / f"trace_rank{dist.get_rank()}.json"))
        own = _summary(self._profile.events(), max(self._recorded, 1))
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, own)
        self._summaries = gathered


def _summary(events: Iterable[Any], steps: int) -> dict[str, float]:
    """Seconds a step in which a collective or send was under way, and the rest; overlapping ones count once."""
    spans = [(event.time_range.start, event.time_range.end) for event in events]
    busy = [
        (event.time_range.start, event.time_range.end)
        for event in events
        if event.name.startswith(COMMUNICATION_PREFIXES)
    ]
    if not spans:
        return {"communication_s": 0.0, "rest_s": 0.0}
    whole = (max(end for _, end in spans) - min(start for start, _ in spans)) * 1e-6
    communication = _union(busy) * 1e-6
    return {"communication_s": communication / steps, "rest_s": (whole - communication) / steps}


def _union(spans: list[tuple[float, float]]) -> float:
    """Length that the spans cover together."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(end - max(start, reached), 0.0)
        reached = max(reached, end)
    return total
