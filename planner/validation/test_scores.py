"""Scores of Megatron-Core's own tests: one a test, over all runs of it that can be held against a prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from cost_models.units import GIB, MIB
from planner.validation.predict import Outcome

BOUND_RELATIVE: Final = 0.04
BOUND_BYTES: Final = 64 * MIB
"""A run is inside where predicted and measured peaks differ by no more than the larger of the two."""

LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class TestScore:
    """One test: medians over its scored runs, and the median of their errors in units of the bound."""

    __test__ = False

    name: str
    runs: int
    predicted_bytes: float
    measured_bytes: float
    error_in_bounds: float
    reason: str
    runs_differ: bool = False
    """Whether two of its runs differ by more than twice the bound, so that no prediction is inside for both."""

    @property
    def group(self) -> str:
        """Folder of the test."""
        return self.name.partition("/")[0]

    @property
    def is_inside(self) -> bool:
        """Whether half of the runs or more are inside the bound."""
        return self.error_in_bounds <= 1.0

    def to_json(self) -> dict[str, object]:
        """The test as validate reports it."""
        return {
            "test": self.name,
            "runs": self.runs,
            "predicted_gib": round(self.predicted_bytes / GIB, 3),
            "measured_gib": round(self.measured_bytes / GIB, 3),
            "error_in_bounds": round(self.error_in_bounds, 3),
            "inside": self.is_inside,
            "runs_differ": self.runs_differ,
            "reason": self.reason,
        }


def test_scores(outcomes: Sequence[Outcome]) -> tuple[TestScore, ...]:
    """Scores of all tests that have a run to score, furthest off first."""
    tests: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.run.text("test") and unscored(outcome) is None:
            tests.setdefault(outcome.run.text("test"), []).append(outcome)
    scores = (_score(name, rows) for name, rows in tests.items())
    return tuple(sorted(scores, key=lambda score: -score.error_in_bounds))


def unscored(outcome: Outcome) -> str | None:
    """Why a run has no part in its test's score; None where it has."""
    if outcome.skipped is not None:
        return outcome.skipped
    if outcome.memory_error is None:
        return "no peak memory is stated"
    run = outcome.run
    if run.text("assumed_devices") and run.text("sharded"):
        return "the number of GPUs is not stated, and optimizer states are sharded over them"
    return None


def tests_json(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Tests inside the bound, in all and by group, the furthest ones with a reason, and runs not scored by reason."""
    scores = test_scores(outcomes)
    groups: dict[str, list[TestScore]] = {}
    for score in scores:
        groups.setdefault(score.group, []).append(score)
    reasons: dict[str, int] = {}
    for outcome in outcomes:
        reason = unscored(outcome)
        if reason is not None:
            reasons[reason] = reasons.get(reason, 0) + 1
    return {
        "bound": {"relative": BOUND_RELATIVE, "bytes": BOUND_BYTES},
        "tests": len(scores),
        "inside": sum(score.is_inside for score in scores),
        "runs_differ": sum(score.runs_differ for score in scores),
        "runs_differ_inside": sum(score.runs_differ and score.is_inside for score in scores),
        "by_group": {
            group: {"tests": len(found), "inside": sum(score.is_inside for score in found)}
            for group, found in sorted(groups.items())
        },
        "worst": [score.to_json() for score in scores[:LISTED]],
        "runs_not_scored": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    }


def _score(name: str, rows: list[Outcome]) -> TestScore:
    predicted = [row.predicted_bytes or 0.0 for row in rows]
    measured = [row.run.memory_bytes or 0.0 for row in rows]
    errors = [_in_bounds(p, m) for p, m in zip(predicted, measured, strict=True)]
    score = median(errors)
    reason = _reason(rows, median(p - m for p, m in zip(predicted, measured, strict=True)))
    differ = _in_bounds(min(measured), max(measured)) > 2.0
    return TestScore(name, len(rows), median(predicted), median(measured), score, reason, differ)


def _in_bounds(predicted: float, measured: float) -> float:
    return abs(predicted - measured) / max(BOUND_RELATIVE * measured, BOUND_BYTES)


def _reason(rows: list[Outcome], off_bytes: float) -> str:
    """Where the difference lies, from what the runs keep between steps and from how they differ among themselves."""
    peaks: dict[str, list[float]] = {}
    for row in rows:
        peaks.setdefault(row.run.text("gpu"), []).append(row.run.memory_bytes or 0.0)
    low, high = max(
        ((min(found), max(found)) for found in peaks.values()), key=lambda ends: ends[1] - ends[0]
    )
    if _in_bounds(low, high) > 1.0:
        return f"runs on one GPU differ: {low / GIB:.2f} to {high / GIB:.2f} GiB (other software or routing)"
    every = [peak for found in peaks.values() for peak in found]
    if _in_bounds(min(every), max(every)) > 2.0:
        return f"its runs differ: {min(every) / GIB:.2f} to {max(every) / GIB:.2f} GiB (other software or routing)"
    resting = [row for row in rows if row.run.number("resident_gib") is not None]
    if not resting:
        return ""
    rest_bytes = median(_at_rest(row) - (row.run.number("resident_gib") or 0.0) * GIB for row in resting)
    inside_bytes = off_bytes - rest_bytes
    place = "between steps" if abs(rest_bytes) > abs(inside_bytes) else "inside the step"
    return f"{rest_bytes / MIB:+.0f} MiB between steps, {inside_bytes / MIB:+.0f} MiB beside: mostly {place}"


def _at_rest(row: Outcome) -> float:
    """States and workspaces of the last pipeline rank."""
    if row.prediction is None:
        return 0.0
    causes = row.prediction.memory.stages[-1].by_cause
    return sum(causes[name] for name in ("weights", "gradients", "optimizer", "workspaces"))
