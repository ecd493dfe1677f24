"""Errors of the loop: predicted over measured steps by kind of layout, and whether they rank alike."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from planner.executor.measured.compare import rank_correlation

LIMITS: Final = {"single": 0.15}
OTHER_LIMIT: Final = 0.25
"""Errors that are aimed at on an idle machine: of one process, and of two."""


@dataclass(frozen=True, slots=True)
class LoopRow:
    """One layout that ran, or why not. `busy_step_s` are the processor seconds of all ranks over the cores that they
    share: what the step takes where nobody waits and nothing else runs; `load` is the machine's before the run."""

    layout: str
    engine: str
    processes: int
    group: str
    planned: bool
    predicted_step_s: float = 0.0
    low_s: float = 0.0
    high_s: float = 0.0
    measured_step_s: float = 0.0
    busy_step_s: float = 0.0
    predicted_bytes: float = 0.0
    measured_bytes: float = 0.0
    load: float = 0.0
    compute_from: str = ""
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        """Predicted / measured step."""
        return self.predicted_step_s / self.measured_step_s if self.measured_step_s else None

    @property
    def busy_ratio(self) -> float | None:
        """Predicted step / processor seconds of a core."""
        return self.predicted_step_s / self.busy_step_s if self.busy_step_s else None

    def to_json(self) -> dict[str, object]:
        """All fields by name, and the ratios."""
        return asdict(self) | {"ratio": self.ratio, "busy_ratio": self.busy_ratio}


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """Median |error| of the step by group, against the wall and against processor seconds; rank correlations."""

    errors: dict[str, float]
    busy_errors: dict[str, float]
    correlation: float | None
    busy_correlation: float | None
    ran: int
    failed: int

    def to_json(self) -> dict[str, Any]:
        """All fields by name, and the errors that are aimed at."""
        return asdict(self) | {"limits": {group: limit_of(group) for group in self.errors}}


def limit_of(group: str) -> float:
    """The error that is aimed at."""
    return LIMITS.get(group, OTHER_LIMIT)


def summarise(rows: Sequence[LoopRow]) -> LoopSummary:
    """Errors of all rows that ran."""
    ran = [row for row in rows if not row.failure]
    groups = dict.fromkeys(row.group for row in ran)
    predicted = [row.predicted_step_s for row in ran]
    return LoopSummary(
        {group: _error([row.ratio for row in ran if row.group == group]) for group in groups},
        {group: _error([row.busy_ratio for row in ran if row.group == group]) for group in groups},
        rank_correlation(predicted, [row.measured_step_s for row in ran]),
        rank_correlation(predicted, [row.busy_step_s for row in ran]),
        len(ran),
        len(rows) - len(ran),
    )


def _error(ratios: Sequence[float | None]) -> float:
    return median(abs(ratio - 1.0) for ratio in ratios if ratio is not None)
