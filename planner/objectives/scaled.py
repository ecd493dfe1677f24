"""Objectives that are a factor of the step at each number of devices: cost, energy, useful seconds of a step.

    value(d) = factor(d) x step(d),  bound(d) = factor(d) x least step(d)

Every declared number of devices is bounded without solving; those whose bound could still win are solved in the order
of their bounds, until none is left below the best.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from planner.answers import PlanResult
from planner.objectives.asking import Asking
from planner.objectives.counts import coarse_counts
from planner.objectives.deadline import fewest_seconds, none_fast_enough
from planner.objectives.goodput import HOUR_S
from planner.objectives.proof import Point, Proof, with_proof
from planner.objectives.run import KILOWATT_HOUR_J, MILLION, RunTerms


@dataclass(frozen=True, slots=True)
class Scale:
    """What is made small: its unit, the factor of the step at a number of devices, and how values are shown."""

    unit: str
    factor: Callable[[RunTerms], float]
    is_rate: bool = False

    def shown(self, terms: RunTerms, value: float | None) -> float | None:
        """The value in its unit: itself, or the units of a step over it."""
        if value is None or not math.isfinite(value):
            return None
        return terms.units_per_step / value if self.is_rate else value


@dataclass(frozen=True, slots=True)
class _Count:
    """One number of devices: its terms, the factor of its step and the bound of its value."""

    devices: int
    terms: RunTerms
    factor: float
    least_step_s: float

    @property
    def bound(self) -> float:
        """What no plan on so many devices beats."""
        return self.factor * self.least_step_s


@dataclass(slots=True)
class _Found:
    """What is known while the counts are looked at."""

    points: list[Point] = field(default_factory=list)
    floor: float = math.inf  # of everything that could have won
    value: float = math.inf
    count: _Count | None = None
    result: PlanResult | None = None


def scale_of(objective: str, terms: RunTerms) -> Scale:
    """The scale of an objective; cost is counted in device hours where no price is known or all is free."""
    whole = "run" if terms.steps is not None else "step"
    if objective == "energy":
        return Scale(f"kWh a {whole}", lambda t: t.power_w / KILOWATT_HOUR_J * t.wall_s(1.0))
    if objective == "goodput":
        return Scale(f"useful {terms.unit}/s", _useful_seconds, is_rate=True)
    priced = bool(terms.price_usd_per_s)
    money = "USD" if priced else "device hours (no price known)"

    def per_s(t: RunTerms) -> float:
        return (t.price_usd_per_s or 0.0) if priced else t.devices / HOUR_S

    if objective == "cost_per_token":
        return Scale(f"{money} per million {terms.unit}", lambda t: per_s(t) * MILLION / t.units_per_step)
    return Scale(f"{money} a {whole}", lambda t: per_s(t) * t.wall_s(1.0))


def least_scaled(asking: Asking) -> PlanResult:
    """The plan, over the declared numbers of devices, with the least value of a scaled objective."""
    scale = scale_of(asking.search.objective, asking.terms(asking.situation))
    space = coarse_counts(asking.situation.cluster)
    found = _Found()
    for count in sorted(_bounded(asking, scale, space), key=lambda c: (c.bound, c.devices)):
        _look(asking, scale, count, found)
    if found.result is None or found.count is None:
        return none_fast_enough(asking, _proof(asking, scale, found, space))
    proof = _proof(asking, scale, found, space)
    return with_proof(found.result, proof, asking, {"devices": found.count.devices})


def _proof(asking: Asking, scale: Scale, found: _Found, space: tuple[int, ...]) -> Proof:
    terms = found.count.terms if found.count else asking.terms(asking.situation)
    floor = min(found.floor, found.value)
    return Proof(
        objective=asking.search.objective,
        unit=scale.unit,
        sense="most" if scale.is_rate else "least",
        value=scale.shown(terms, found.value),
        bound=scale.shown(terms, floor),
        points=tuple(sorted(found.points, key=lambda point: point.changes["devices"])),
        space={"devices": list(space)},
    )


def _bounded(asking: Asking, scale: Scale, space: tuple[int, ...]) -> Iterator[_Count]:
    """Every count with the bound of its value; by arithmetic alone once time is up."""
    for devices in space:
        situation = asking.at({"devices": devices})
        if situation is None:
            continue
        least = fewest_seconds(situation)
        if not asking.is_late:
            least = max(least, asking.least_step_s({"devices": devices}))
        terms = asking.terms(situation)
        yield _Count(devices, terms, scale.factor(terms), least)


def _look(asking: Asking, scale: Scale, count: _Count, found: _Found) -> None:
    """Settle one count: by its bound where that is enough, else by a search."""
    outcome, value, bound = _by_bound(count, found.value * (1.0 - asking.search.gap))
    if not outcome:
        outcome, value, bound, result = _by_search(asking, count, found.value)
        if value is not None and value < found.value:
            found.value, found.count, found.result = value, count, result
    if outcome in ("fits", "open", "not_better"):
        found.floor = min(found.floor, bound)
    shown = scale.shown(count.terms, value), scale.shown(count.terms, bound)
    found.points.append(Point({"devices": count.devices}, outcome, *shown))


def _by_bound(count: _Count, ceiling: float) -> tuple[str, float | None, float]:
    """Outcome, value and bound of a count that needs no search; an empty outcome otherwise."""
    if not math.isfinite(count.least_step_s):
        return "does_not_fit", None, math.inf
    if count.least_step_s > count.terms.slowest_step_s:
        return "too_slow", None, count.bound
    if count.bound >= ceiling:
        return "not_better", None, count.bound
    return "", None, count.bound


def _by_search(
    asking: Asking, count: _Count, ceiling: float
) -> tuple[str, float | None, float, PlanResult | None]:
    """Outcome, value, bound and plan of a count that was solved; `ceiling` is a value that it must be below."""
    limit, useful_s = count.terms.slowest_step_s, ceiling / count.factor
    result = (
        None if asking.is_late else asking.fastest({"devices": count.devices}, None, min(limit, useful_s))
    )
    if result is None or result.status == "unknown":
        return "open", None, count.bound, None
    lower_s = max(result.certificate.lower_bound_s or 0.0, count.least_step_s)
    bound, best = count.factor * lower_s, result.best
    if best is not None and best.step_s <= limit:
        return "fits", count.factor * best.step_s, bound, result
    if best is None and result.certificate.lower_bound_s is None:
        return "does_not_fit", None, math.inf, None
    outcome = "too_slow" if lower_s > limit else "open" if best is not None else "not_better"
    return outcome, None, bound, None


def _useful_seconds(terms: RunTerms) -> float:
    return 1.0 / terms.goodput.share if terms.goodput.share > 0.0 else math.inf
