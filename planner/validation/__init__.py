"""Predictions against measured runs: a table in, every row with both numbers and the errors out."""

from collections.abc import Callable
from pathlib import Path

from planner.validation.predict import outcome_of
from planner.validation.report import ValidationReport
from planner.validation.rows import read_runs

__all__ = ["ValidationReport", "validate_file"]


def validate_file(path: Path, on_row: Callable[[int, int], None] | None = None) -> ValidationReport:
    """Predict every run of a CSV table; `on_row` is told (rows done, rows in all). A row that cannot be predicted says
    why; only a file that is no such table raises BadInput."""
    runs = read_runs(Path(path))
    outcomes = []
    for number, run in enumerate(runs, start=1):
        outcomes.append(outcome_of(run))
        if on_row:
            on_row(number, len(runs))
    return ValidationReport(tuple(outcomes))
