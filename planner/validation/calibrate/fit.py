"""The fit and its errors: in sample, each source left out, and each row of a mixture's generation left out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.intervals import shares
from planner.validation.calibrate.parameters import Parameter, depends, efficiency_under, parameters_of
from planner.validation.calibrate.solve import robust_solve
from planner.validation.mapping import Case
from planner.validation.predict import Outcome, predict_case

NOISY_TIMES: Final = ("golden",)
"""Sources whose step times come from few iterations on shared test machines: their memory is used, not their time."""

VOTES: Final = 8
"""Rows of one source on one architecture weigh no more than so many together: they share what is wrong about them."""

ITERATIONS: Final = 3
STEP: Final = 0.25
"""Difference, in standard deviations of a constant, over which derivatives are taken."""

DECIMALS: Final = 2
"""Digits that a fitted value keeps, in standard deviations of its constant: what is written does not hang on the last
bits of a machine's logarithms."""

SMALLEST_GENERATION: Final = 3
"""Rows of a generation on one architecture from which each is also left out on its own."""

Values = dict[Parameter, float]


@dataclass(frozen=True, slots=True)
class Left:
    """log(predicted / measured) of a row in sample, with its source left out, and (mixtures) with the row left out.

    `alone` says that no other source knows the row's architecture; `communication` is the share of the predicted step
    that shows of communication (root of the sum of the kinds' squares), `doublings` how often the devices of one node
    were doubled.
    """

    case: Case
    inside: float
    by_source: float
    by_row: float | None
    alone: bool
    communication: float
    doublings: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted constants in the order of their names, and every fitted row's errors."""

    values: tuple[tuple[Parameter, float], ...]
    rows: tuple[Left, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the rows, in order."""
        return tuple(sorted({left.case.run.source for left in self.rows}))


def usable(case: Case) -> bool:
    """Whether constants may be fitted to a case's step time."""
    return case.may_fit and bool(case.run.step_s) and case.run.source not in NOISY_TIMES


def calibrate(outcomes: Sequence[Outcome]) -> Calibration:
    """Fit to the rows that may be fitted to; the same rows give the same constants."""
    cases = [o.case for o in outcomes if o.case and o.step_error is not None and usable(o.case)]
    cases.sort(key=lambda case: case.run.id)
    return _calibrated(cases) if cases else Calibration((), ())


def log_error(case: Case, values: Mapping[Parameter, float]) -> float:
    """log(predicted / measured) of one case under fitted values."""
    predicted = predict_case(case, efficiency_under(case, values)).step_s * case.stretch
    return math.log(predicted / (case.run.step_s or math.nan))


def _calibrated(cases: list[Case]) -> Calibration:
    parameters = parameters_of(cases)
    weights = _weights(cases)
    x = [0.0] * len(parameters)
    for _ in range(ITERATIONS):
        errors, slopes = _linearised(cases, parameters, x)
        start = x
        x = robust_solve(slopes, errors, weights, start)
    every = range(len(cases))

    def refitted(kept: Sequence[int]) -> Values:
        chosen = ([slopes[i] for i in kept], [errors[i] for i in kept], [weights[i] for i in kept])
        return _named(parameters, robust_solve(*chosen, start))

    final = _named(parameters, x)
    by_source = {
        source: refitted([i for i in every if cases[i].run.source != source])
        for source in sorted({case.run.source for case in cases})
    }
    rows = []
    for index, case in enumerate(cases):
        without = None
        if _is_left_out(case, cases):
            without = log_error(case, refitted([i for i in every if i != index]))
        alone = {c.run.source for c in cases if c.architecture == case.architecture} == {case.run.source}
        outside = log_error(case, by_source[case.run.source])
        rows.append(Left(case, log_error(case, final), outside, without, alone, *_reach(case, final)))
    return Calibration(tuple(final.items()), tuple(rows))


def _reach(case: Case, values: Values) -> tuple[float, float]:
    """What of a prediction is harder to know: communication that shows, and many nodes."""
    found = predict_case(case, efficiency_under(case, values))
    cluster = case.situation.cluster
    doublings = math.log2(cluster.num_devices / cluster.groups[0].devices_per_node)
    return math.hypot(*shares(found.breakdown_s, found.step_s)), max(doublings, 0.0)


def _linearised(
    cases: Sequence[Case], parameters: Sequence[Parameter], x: Sequence[float]
) -> tuple[list[float], list[list[float]]]:
    """Errors of all cases at x, and their derivatives."""
    here = dict(zip(parameters, x, strict=True))
    errors = [log_error(case, here) for case in cases]
    slopes = []
    for case, error in zip(cases, errors, strict=True):
        row = [0.0] * len(parameters)
        for index, parameter in enumerate(parameters):
            if depends(case, parameter):
                moved = {**here, parameter: here[parameter] + STEP}
                row[index] = (log_error(case, moved) - error) / STEP
        slopes.append(row)
    return errors, slopes


def _named(parameters: Sequence[Parameter], x: Sequence[float]) -> Values:
    return {parameter: round(value, DECIMALS) for parameter, value in zip(parameters, x, strict=True)}


def _weights(cases: Sequence[Case]) -> list[float]:
    crowd: dict[tuple[str, str], int] = {}
    keys = [(case.run.source, case.architecture) for case in cases]
    for key in keys:
        crowd[key] = crowd.get(key, 0) + 1
    return [min(1.0, VOTES / crowd[key]) for key in keys]


def generation_key(case: Case) -> tuple[str, str]:
    """Generation and architecture, whose rows share their software's constants."""
    return case.situation.generation.name, case.architecture


def _is_left_out(case: Case, cases: Sequence[Case]) -> bool:
    if not case.situation.model.is_moe:
        return False
    kin = [c for c in cases if c.situation.model.is_moe and generation_key(c) == generation_key(case)]
    return len(kin) >= SMALLEST_GENERATION
