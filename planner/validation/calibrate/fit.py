"""The fit and its errors: in sample, each source left out, and each row of a mixture's generation left out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from planner.intervals import shares
from planner.validation.calibrate.parameters import Parameter, depends, efficiency_under, parameters_of
from planner.validation.calibrate.solve import Vector, deviation, precision_root, pull_of, robust_solve
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

    `without` is the last of these, for other rows as the linear fit says. `near` and `far` are the standard deviations
    of a prediction that the constants leave, fitted to all rows and without the row's source; `slopes` its derivatives.
    `alone` says that no other source knows the row's architecture; `communication` is the share of the predicted step
    that shows of communication (root of the sum of the kinds' squares).
    """

    case: Case
    inside: float
    by_source: float
    by_row: float | None
    alone: bool
    communication: float
    without: float = 0.0
    near: float = 0.0
    far: float = 0.0
    slopes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted constants in the order of their names, every fitted row's errors, and how well the constants are known:
    the lower factor of their precision. `others` are rows whose knobs are stated that nothing was fitted to, `unseen`
    the runs of profiles/published/unseen.csv."""

    values: tuple[tuple[Parameter, float], ...]
    rows: tuple[Left, ...]
    root: tuple[tuple[float, ...], ...] = ()
    others: tuple[Left, ...] = ()
    unseen: tuple[Left, ...] = ()

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
    if not cases:
        return Calibration((), ())
    found = _calibrated(cases)
    fitted = {case.run.id for case in cases}
    others = [
        o.case
        for o in outcomes
        if o.case and o.step_error is not None and not o.assumed and o.run.id not in fitted
    ]
    values = dict(found.values)
    return replace(found, others=tuple(_unfitted(case, values) for case in sorted(others, key=_name)))


def with_unseen(found: Calibration, outcomes: Sequence[Outcome]) -> Calibration:
    """A fit beside runs never fitted to, with their errors under the profiles as they are."""
    unseen = []
    for one in sorted(outcomes, key=lambda outcome: outcome.run.id):
        if one.case and one.prediction and one.step_error is not None:
            error, step_s = math.log1p(one.step_error), one.prediction.step_s
            shown = math.hypot(*shares(one.prediction.breakdown_s, step_s))
            unseen.append(Left(one.case, error, error, None, False, shown, without=error))
    return replace(found, unseen=tuple(unseen))


def _unfitted(case: Case, values: Values) -> Left:
    """A row that was not fitted to: every error of it is of a row left out."""
    error = log_error(case, values)
    return Left(case, error, error, None, False, _shown(case, values), without=error)


def _name(case: Case) -> str:
    return case.run.id


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
    sources = sorted({case.run.source for case in cases})
    others = {source: [i for i in every if cases[i].run.source != source] for source in sources}
    by_source = {source: refitted(others[source]) for source in sources}
    pulls = [pull_of(slopes[i], errors[i], weights[i], x, start) for i in every]

    def root(kept: Sequence[int]) -> list[Vector]:
        return precision_root([slopes[i] for i in kept], [pulls[i] for i in kept], len(parameters))

    whole, without_source = root(every), {source: root(others[source]) for source in sources}
    rows = []
    for index, case in enumerate(cases):
        inside, near = log_error(case, final), deviation(whole, slopes[index])
        by_row = None
        if _is_left_out(case, cases):
            by_row = log_error(case, refitted([i for i in every if i != index]))
        alone = {c.run.source for c in cases if c.architecture == case.architecture} == {case.run.source}
        left = Left(
            case, inside, log_error(case, by_source[case.run.source]), by_row, alone, _shown(case, final)
        )
        # what a linear fit would say of a row that it had not seen
        without = inside / (1.0 - pulls[index] * near**2) if by_row is None else by_row
        far = deviation(without_source[case.run.source], slopes[index])
        rows.append(replace(left, without=without, near=near, far=far, slopes=tuple(slopes[index])))
    return Calibration(tuple(final.items()), tuple(rows), tuple(map(tuple, whole)))


def _shown(case: Case, values: Values) -> float:
    """Share of a predicted step that shows of communication."""
    found = predict_case(case, efficiency_under(case, values))
    return math.hypot(*shares(found.breakdown_s, found.step_s))


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
