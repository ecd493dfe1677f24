"""The fewest devices on which something fits, reaches a deadline, or a rate; each smaller count is ruled out.

1. Counts too slow by arithmetic are ruled out at once.
2. Bisection over the others, as if more devices were always faster, finds a count that will do.
3. That guess is not believed: every smaller count is asked by a search for a plan that will do, until all are ruled
   out or one will do and takes its place.
"""

import math
from dataclasses import dataclass, field

from planner.answers import PlanResult
from planner.objectives.asking import Asking, Changes
from planner.objectives.counts import all_counts
from planner.objectives.deadline import fewest_seconds, none_fast_enough
from planner.objectives.proof import Point, Proof, with_proof

RULED_OUT = ("too_slow", "does_not_fit")


@dataclass(slots=True)
class _Known:
    """What is known of the counts: the points that are settled or open, and the least count that will do."""

    points: dict[int, Point] = field(default_factory=dict)
    result: PlanResult | None = None
    devices: int = 0


def fewest_devices(asking: Asking) -> PlanResult:
    """The plan on the fewest devices that will do, the fastest on so many."""
    space = all_counts(asking.situation.cluster)
    known = _Known()
    left = _fast_enough_by_arithmetic(asking, space, known)
    _bisect(asking, left, known)
    for devices in sorted(left):
        if known.result is not None and devices >= known.devices:
            break
        if devices not in known.points and _will_do(asking, devices, known):
            break
    if known.result is None:
        return none_fast_enough(asking, _proof(space, known))
    refined = asking.fastest({"devices": known.devices})
    result = refined if refined is not None and refined.best is not None else known.result
    return with_proof(result, _proof(space, known), asking, {"devices": known.devices})


def _proof(space: tuple[int, ...], known: _Known) -> Proof:
    """The bound is the least count that is not ruled out."""
    below = [d for d in space if known.result is None or d < known.devices]
    unsettled = [d for d in below if d not in known.points or known.points[d].outcome not in RULED_OUT]
    shown = [point for devices, point in sorted(known.points.items())]
    return Proof(
        objective="devices",
        unit="devices",
        sense="least",
        value=known.devices if known.result else None,
        bound=min(unsettled, default=known.devices) if known.result else min(unsettled, default=None),
        points=tuple(shown),
        space={"devices": _words(space)},
    )


def _words(space: tuple[int, ...]) -> object:
    """The declared counts, shortened where they are whole nodes in a row."""
    if len(space) <= 40:
        return list(space)
    return f"{space[0]} to {space[-1]}, {len(space)} counts: every one inside a node, whole nodes, and all"


def _bisect(asking: Asking, left: list[int], known: _Known) -> None:
    """Find a count that will do, as if every larger one would too."""
    low, high = 0, len(left) - 1
    while low <= high and not asking.is_late:
        middle = (low + high) // 2
        if _will_do(asking, left[middle], known):
            high = middle - 1
        else:
            low = middle + 1


def _fast_enough_by_arithmetic(asking: Asking, space: tuple[int, ...], known: _Known) -> list[int]:
    """The counts that arithmetic does not rule out; the others are noted with their bound."""
    terms, devices = asking.terms(asking.situation), asking.situation.cluster.num_devices
    together_s = fewest_seconds(asking.situation) * devices
    left = []
    for count in space:
        least_s = together_s / count
        if least_s > terms.on(count).slowest_step_s:
            known.points[count] = Point({"devices": count}, "too_slow", None, least_s)
        else:
            left.append(count)
    return left


def _will_do(asking: Asking, devices: int, known: _Known) -> bool:
    """Ask one count; a plan that will do is kept where no smaller count has one."""
    point, result = _asked(asking, devices)
    known.points[devices] = point
    if result is not None and (known.result is None or devices < known.devices):
        known.result, known.devices = result, devices
    return result is not None


def _asked(asking: Asking, devices: int) -> tuple[Point, PlanResult | None]:
    """How one count ends: by a search below the limit, which needs no bound before it; without a limit by the bound."""
    change = {"devices": devices}
    situation = asking.at(change)
    if situation is None:
        return _ruled_out(change, math.inf), None
    if asking.is_late:
        return Point(change, "open"), None
    limit = asking.terms(situation).slowest_step_s
    # Where anything will do, the search may stop at the first plan; the one that is kept is refined at the end.
    least = 0.0 if math.isfinite(limit) else asking.least_step_s(change)
    if not math.isfinite(least):
        return _ruled_out(change, least), None
    result = asking.fastest(change, within_s=limit) if math.isfinite(limit) else asking.fits(change)
    if result is None or result.status == "unknown":
        return Point(change, "open", None, least or None), None
    # Without a plan and without a bound nothing fits; a plan above the limit may still be found.
    bound = result.certificate.lower_bound_s
    lower = math.inf if bound is None and result.best is None else max(bound or least, least)
    if result.best is None or lower > limit:
        return _ruled_out(change, lower), None
    is_enough = result.best.step_s <= limit
    point = Point(change, "fits" if is_enough else "open", result.best.step_s, lower)
    return point, result if is_enough else None


def _ruled_out(change: Changes, least_s: float) -> Point:
    """Nothing legal fits (no finite bound), or the bound is above what was asked for."""
    is_finite = math.isfinite(least_s)
    return Point(change, "too_slow" if is_finite else "does_not_fit", None, least_s if is_finite else None)
