"""Fit the scales of the efficiency curves to measured runs: a few constants an architecture, shared by all rows.

Only core rows of plain transformers with every knob stated are fitted to. Every source has one vote, the mean
of |log(predicted / measured)| over its rows, each capped, and the sum is searched on a fixed grid: no row, no large
source and no odd source decides alone, and the same table gives the same scales.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Final

from cost_models.profiles import profiles_root
from cost_models.roofline import Scale
from cost_models.roofline.price import NARROW_BYTES
from planner.validation.mapping import Case
from planner.validation.predict import Outcome, predict_case

GRID: Final[Mapping[str, tuple[float, ...]]] = {
    "matmul": tuple(round(0.60 + 0.025 * i, 3) for i in range(17)),
    "flash2": tuple(round(0.20 + 0.05 * i, 3) for i in range(17)),
}
"""Values tried for each scale; none above 1, as no step beats the kernels that the curves describe, run alone."""

NOISY_TIMES: Final = ("golden",)
"""Sources whose step times come from few iterations on shared test machines: their memory is used, not their time."""

CAP: Final = 0.25
"""A row that is further off says that something else than a scale is wrong, and not by how much to move it."""

SWEEPS: Final = 3
NORMAL_95: Final = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class Fit:
    """Scales of one architecture, the rows and sources they rest on, and how far held-out sources were off."""

    architecture: str
    scale: Scale
    rows: int
    sources: tuple[str, ...]
    fitted: tuple[str, ...]
    objective: float
    held_out: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    alone: tuple[str, ...] = ()
    """Sources that are the only ones to show one of their constants: held out, they are predicted without it."""

    def to_json(self) -> dict[str, object]:
        """Scales, and per source the log errors it had when it was left out of the fit."""
        return {
            "architecture": self.architecture,
            "scale": {name: getattr(self.scale, name) for name in self.fitted},
            "rows": self.rows,
            "sources": list(self.sources),
            "objective": self.objective,
            "held_out": {
                source: {
                    "n": len(errors),
                    "median_log_error": median(errors),
                    "median_absolute_log_error": median(map(abs, errors)),
                    "only_source_of_a_constant": source in self.alone,
                }
                for source, errors in self.held_out.items()
            },
        }


def calibrate(outcomes: Sequence[Outcome]) -> tuple[Fit, ...]:
    """Fit every architecture that the table has fit rows of; with two sources or more, also without each in turn."""
    cases: dict[str, list[Case]] = {}
    for outcome in outcomes:
        if outcome.case and outcome.step_error is not None and _usable(outcome.case):
            cases.setdefault(outcome.case.architecture, []).append(outcome.case)
    return tuple(_fit_with_hold_outs(name, rows) for name, rows in sorted(cases.items()))


def step_log_sigma(fits: Sequence[Fit]) -> float | None:
    """Standard deviation of log(measured / predicted) whose 90 % interval covers 90 % of the held-out rows.

    Sources that alone show a constant are left out: without it they are predicted under no fit at all.
    """
    kept = [found for fit in fits for name, found in fit.held_out.items() if name not in fit.alone]
    errors = sorted(abs(error) for found in kept for error in found)
    if not errors:
        return None
    return errors[min(len(errors) - 1, math.ceil(0.9 * len(errors)) - 1)] / NORMAL_95


def write_scales(fits: Sequence[Fit]) -> tuple[Path, ...]:
    """Write the scales into profiles/efficiency/<architecture>.toml, each with what it was fitted to."""
    return tuple(_write(fit, profiles_root() / "efficiency" / f"{fit.architecture}.toml") for fit in fits)


def _usable(case: Case) -> bool:
    return case.is_fit and case.run.source not in NOISY_TIMES


class _Errors:
    """log(predicted / measured) of cases under scales, each computed once."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = tuple(cases)
        self._known: dict[tuple[int, Scale], float] = {}

    def of(self, index: int, scale: Scale) -> float:
        """The error of one case."""
        if (index, scale) not in self._known:
            self._known[index, scale] = log_error(self.cases[index], scale)
        return self._known[index, scale]

    def objective(self, chosen: Sequence[int], scale: Scale) -> float:
        """Mean over sources of the mean |log(predicted / measured)| of their rows, each at most CAP."""
        votes: dict[str, list[float]] = {}
        for index in chosen:
            votes.setdefault(self.cases[index].run.source, []).append(min(CAP, abs(self.of(index, scale))))
        return fmean(fmean(found) for found in votes.values())


def _fit_with_hold_outs(architecture: str, cases: list[Case]) -> Fit:
    errors = _Errors(cases)
    every = range(len(cases))
    names = _fitted_names(cases)
    scale, best = _fit(errors, every, names)
    sources = tuple(sorted({case.run.source for case in cases}))
    held: dict[str, tuple[float, ...]] = {}
    alone: list[str] = []
    for source in sources:
        rest = [i for i in every if cases[i].run.source != source]
        left = _fitted_names([cases[i] for i in rest]) if rest else ()
        without = _fit(errors, rest, left)[0] if rest else Scale()
        own = _fitted_names([case for case in cases if case.run.source == source])
        alone += [source] if not left or ("flash2" in own and "flash2" not in left) else []
        held[source] = tuple(errors.of(i, without) for i in every if cases[i].run.source == source)
    return Fit(architecture, scale, len(cases), sources, names, best, held, tuple(alone))


def _fit(errors: _Errors, chosen: Sequence[int], names: Sequence[str]) -> tuple[Scale, float]:
    """Coordinate descent over the grid; ties go to the value nearest 1, so that nothing moves without evidence."""
    scale, best = Scale(), math.inf
    for _ in range(SWEEPS):
        before = scale
        for name in (n for n in names if n != "narrow"):
            candidates = [(_with(scale, name, value, names), value) for value in GRID[name]]
            tried = [
                (errors.objective(chosen, one), abs(math.log(value)), value) for one, value in candidates
            ]
            best, _, value = min(tried)
            scale = _with(scale, name, value, names)
        if scale == before:
            break
    return scale, best


def _with(scale: Scale, name: str, value: float, names: Sequence[str]) -> Scale:
    """The scale with one value changed; fp8 and fp4 move with matmul where rows of theirs are among the fitted."""
    if name == "matmul" and "narrow" in names:
        return replace(scale, matmul=value, narrow=value)
    return replace(scale, **{name: value})


def _fitted_names(cases: Sequence[Case]) -> tuple[str, ...]:
    needed = {"matmul": True, "narrow": any(map(_is_narrow, cases)), "flash2": any(map(_is_flash2, cases))}
    return tuple(name for name, found in needed.items() if found)


def log_error(case: Case, scale: Scale) -> float:
    """log(predicted / measured) of one run under a scale."""
    predicted = predict_case(case, {case.architecture: scale}).step_s * case.stretch
    return math.log(predicted / (case.run.step_s or math.nan))


def _is_narrow(case: Case) -> bool:
    return case.situation.job.precision.value in NARROW_BYTES


def _is_flash2(case: Case) -> bool:
    return getattr(case.situation.engine.options, "attention", "") == "flash2"


def _write(fit: Fit, path: Path) -> Path:
    """Replace the lines of [scale]; every other line stays as it is."""
    text = path.read_text(encoding="utf-8")
    head, _, tail = text.partition("[scale]\n")
    source = f"planner calibrate on profiles/published: {fit.rows} core rows of {', '.join(fit.sources)}"
    for name in fit.fitted:
        value = getattr(fit.scale, name)
        line = f'{name} = {{ value = {value:g}, unit = "ratio", kind = "fitted", source = "{source}" }}'
        found = re.compile(rf"^{name} = .*$", re.MULTILINE)
        tail = found.sub(line, tail) if found.search(tail) else f"{tail.rstrip()}\n{line}\n"
    path.write_text(f"{head}[scale]\n{tail}", encoding="utf-8")
    return path
