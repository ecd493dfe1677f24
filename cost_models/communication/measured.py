"""Seconds of collectives from a device's profile: straight in the logarithms between message sizes and groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.operators.base import Collective
from cost_models.profiles import MeasuredProfile, Point
from cost_models.profiles.curves import Curve, curve_of_points

Array = NDArray[np.float64]

INTERFERENCE: Final = "interference"
PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class MeasuredCollectives:
    """Curves over bytes by collective and ranks, of groups inside the innermost domain; `interference` is the slowdown
    of computation for each second of a message beside it, None where it was not measured."""

    profile: str
    curves: Mapping[Collective, Mapping[int, Curve]]
    interference: float | None = None

    def covers(self, collective: Collective, ranks: int) -> bool:
        """Whether a group of so many ranks lies within the measured ones."""
        known = self.curves.get(collective)
        return bool(known) and min(known) <= ranks <= max(known) if known else False

    def apply(self, collective: Collective, ranks: Array, payload: Array, formula: Array) -> Array:
        """Measured seconds where a group of `ranks` lies within the measured groups, else those of the formula.

        Between two measured groups the logarithm of the time is straight in the logarithm of the ranks.
        """
        known = self.curves.get(collective)
        if not known:
            return formula
        shape = np.broadcast_shapes(np.shape(ranks), np.shape(payload), np.shape(formula))
        size = np.broadcast_to(np.asarray(ranks, dtype=float), shape)
        moved = np.broadcast_to(payload, shape)
        found = np.array(np.broadcast_to(formula, shape))
        if collective is Collective.SEND_RECEIVE:  # two ranks, whatever the group that they are of
            size = np.minimum(size, float(PAIR))
        columns = {"bytes": moved}
        groups = sorted(known)
        times = {count: known[count].at(columns) for count in groups if np.any(size >= count)}
        for low, high in zip(groups, [*groups[1:], groups[-1]], strict=True):
            exact = size == low
            if exact.any():
                found = np.where(exact, times[low], found)
            between = (size > low) & (size < high)
            if between.any():
                share = np.log(np.maximum(size, 1.0) / low) / np.log(high / low)
                upper = times.get(high, known[high].at(columns))
                found = np.where(
                    between, np.exp((1 - share) * np.log(times[low]) + share * np.log(upper)), found
                )
        return np.where(moved > 0.0, found, 0.0)


def measured_collectives(profile: MeasuredProfile | None) -> MeasuredCollectives | None:
    """The collectives of a profile, None where it has none."""
    if profile is None:
        return None
    names = {collective.value: collective for collective in Collective}
    groups: dict[tuple[Collective, int], list[Point]] = {}
    for point in profile.of("collective"):
        if point.name in names:
            groups.setdefault((names[point.name], point.processes), []).append(point)
    curves: dict[Collective, dict[int, Curve]] = {}
    for (collective, ranks), points in groups.items():
        curve = curve_of_points(points)
        if curve is not None:
            curves.setdefault(collective, {})[ranks] = curve
    return MeasuredCollectives(profile.title, curves, profile.fact(INTERFERENCE)) if curves else None
