"""Predictions against measured runs: a table in, every row with both numbers and the errors out."""

from collections.abc import Callable, Hashable
from pathlib import Path

from planner.validation.predict import Outcome, of_run, outcome_of
from planner.validation.report import ValidationReport
from planner.validation.rows import Run, read_runs
from planner.validation.test_runs import read_test_runs

__all__ = ["ValidationReport", "validate_file"]


def validate_file(path: Path, on_row: Callable[[int, int], None] | None = None) -> ValidationReport:
    """Predict every run of a CSV table, or of a JSON list of Megatron-Core's own test runs.

    `on_row` is told (rows done, rows in all). A row that cannot be predicted says why; only a file that is no such
    table raises BadInput.
    """
    path = Path(path)
    runs = read_test_runs(path) if path.suffix.lower() == ".json" else read_runs(path)
    outcomes, known = [], dict[Hashable, Outcome]()
    for number, run in enumerate(runs, start=1):
        asked = _asked(run)
        outcome = known.get(asked) or outcome_of(run)
        known[asked] = outcome
        outcomes.append(of_run(outcome, run))
        if on_row:
            on_row(number, len(runs))
    return ValidationReport(tuple(outcomes))


def _asked(run: Run) -> Hashable:
    """What a run's prediction depends on: runs of one test on equal machines share it; rows of a table do not."""
    if run.arguments is None:
        return run.id
    machine = tuple(run.text(name) for name in ("gpu", "n_gpus", "gpus_per_node", "model", "program"))
    return (machine, frozenset(run.arguments.items()))
