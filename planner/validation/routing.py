"""Fit how full the fullest expert rank of a test run gets: one number for all mixture tests, each also left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final

from planner.validation.predict import Outcome, outcome_of
from planner.validation.rows import Run
from planner.validation.test_runs import read_test_runs
from planner.validation.test_scores import TestScore, test_scores

GRID: Final = (1.0, 1.1, 1.2, 1.3, 1.4)
"""Loads tried: routed copies on a rank at its fullest micro-batch over the mean."""

CAP: Final = 2.0
"""Bounds; a test that is further off says something else than its load."""


@dataclass(frozen=True, slots=True)
class RoutingFit:
    """The load that fits best, what each test was off under the best load of the others, in units of the bound."""

    value: float
    left_out: Mapping[str, tuple[float, float]]

    @property
    def inside(self) -> int:
        """Tests inside the bound under a load fitted without them."""
        return sum(error <= 1.0 for _, error in self.left_out.values())

    @property
    def values(self) -> tuple[float, ...]:
        """Different loads that the fits without one test gave."""
        return tuple(sorted({value for value, _ in self.left_out.values()}))


def fit_routing(path: Path) -> RoutingFit:
    """Fit to the mixture tests of a list of test runs."""
    runs = [run for run in read_test_runs(path) if run.text("moe_imbalance")]
    errors = {load: _errors(runs, load) for load in GRID}
    tests = sorted(errors[GRID[0]])
    left: dict[str, tuple[float, float]] = {}
    for test in tests:
        value = _best(errors, [other for other in tests if other != test])
        left[test] = (value, errors[value][test])
    return RoutingFit(_best(errors, tests), left)


def _best(errors: Mapping[float, Mapping[str, float]], tests: Sequence[str]) -> float:
    return min(GRID, key=lambda load: fmean(min(CAP, errors[load][test]) for test in tests))


def _errors(runs: Sequence[Run], load: float) -> dict[str, float]:
    """Error of every scored test under a load."""
    known: dict[object, Outcome] = {}
    outcomes = []
    for run in runs:
        asked = replace(run, cells={**run.cells, "moe_imbalance": repr(load)})
        machine = tuple(run.text(name) for name in ("gpu", "n_gpus", "gpus_per_node", "program"))
        key = (machine, frozenset((run.arguments or {}).items()))
        known[key] = known.get(key) or outcome_of(asked)
        outcomes.append(replace(known[key], run=asked))
    scores: tuple[TestScore, ...] = test_scores(outcomes)
    return {score.name: score.error_in_bounds for score in scores}
