"""Errors of the loop: predicted over measured steps by kind of layout, and whether they rank alike."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

LIMITS: Final = {"single": 0.15, "dense": 0.05, "experts": 0.05, "latent": 0.05}
OTHER_LIMIT: Final = 0.25
"""Errors that are aimed at on an idle machine: of one process, of models on one GPU, and of several processes."""


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
    model: str = ""
    predicted_reserved_bytes: float = 0.0
    measured_reserved_bytes: float = 0.0
    unprofiled_step_s: float = 0.0
    """Predicted without the device's profile."""

    @property
    def ratio(self) -> float | None:
        """Predicted / measured step."""
        return self.predicted_step_s / self.measured_step_s if self.measured_step_s else None

    @property
    def busy_ratio(self) -> float | None:
        """Predicted step / processor seconds of a core."""
        return self.predicted_step_s / self.busy_step_s if self.busy_step_s else None

    @property
    def unprofiled_ratio(self) -> float | None:
        """The step predicted without the profile / measured step."""
        return self.unprofiled_step_s / self.measured_step_s if self.measured_step_s else None

    def to_json(self) -> dict[str, object]:
        """All fields by name, and the ratios."""
        return asdict(self) | {"ratio": self.ratio, "busy_ratio": self.busy_ratio}


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """Median |error| of the step by group, against the wall, against processor seconds, and without the profile; of
    peak memory, allocated and reserved; rank correlations."""

    errors: dict[str, float]
    busy_errors: dict[str, float]
    correlation: float | None
    busy_correlation: float | None
    ran: int
    failed: int
    unprofiled_errors: dict[str, float]
    memory_error: float | None
    reserved_error: float | None

    def to_json(self) -> dict[str, Any]:
        """All fields by name, and the errors that are aimed at."""
        return asdict(self) | {"limits": {group: limit_of(group) for group in self.errors}}


def limit_of(group: str) -> float:
    """The error that is aimed at."""
    return LIMITS.get(group, OTHER_LIMIT)


def summarise(rows: Sequence[LoopRow]) -> LoopSummary:
    """Errors of all rows that ran."""
    ran = [row for row in rows if not row.failure]
    predicted = [row.predicted_step_s for row in ran]
    return LoopSummary(
        _by_group(ran, [row.ratio for row in ran]),
        _by_group(ran, [row.busy_ratio for row in ran]),
        rank_correlation(predicted, [row.measured_step_s for row in ran]),
        rank_correlation(predicted, [row.busy_step_s for row in ran]),
        len(ran),
        len(rows) - len(ran),
        _by_group(ran, [row.unprofiled_ratio for row in ran]),
        _error([row.predicted_bytes / row.measured_bytes for row in ran if row.measured_bytes]),
        _error(
            [
                row.predicted_reserved_bytes / row.measured_reserved_bytes
                for row in ran
                if row.measured_reserved_bytes
            ]
        ),
    )


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Spearman's correlation of two columns; None for fewer than three rows."""
    count = len(predicted)
    if count < 3:
        return None
    squares = sum((a - b) ** 2 for a, b in zip(_ranks(predicted), _ranks(measured), strict=True))
    return 1.0 - 6.0 * squares / (count * (count * count - 1))


def _by_group(rows: Sequence[LoopRow], ratios: Sequence[float | None]) -> dict[str, float]:
    found = {}
    for group in dict.fromkeys(row.group for row in rows):
        kin = [ratio for row, ratio in zip(rows, ratios, strict=True) if row.group == group]
        error = _error([ratio for ratio in kin if ratio is not None])
        if error is not None:
            found[group] = error
    return found


def _error(ratios: Sequence[float]) -> float | None:
    """Median of |ratio - 1|; None without ratios."""
    return median(abs(ratio - 1.0) for ratio in ratios) if ratios else None


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0] * len(values)
    for place, index in enumerate(order):
        ranks[index] = place
    return ranks
