"""From bursts of samples to a median and the interval within which a second profile's median is expected.

Samples of one burst err together (what else the machine did in that moment), so bursts are what is counted. The
relative variance of a case's burst medians is drawn to that of all cases, as few bursts say little:
s^2 = (PRIOR pooled^2 + sum (x_b / median - 1)^2) / (PRIOR + B - 1). A second profile of as many bursts has the same
error, so the interval is median (1 +- 1.645 s sqrt(2 e / B)), with e = pi / 2 for the median of three or more.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

NORMAL_95: Final = 1.6448536269514722
OF_MEDIAN: Final = math.pi / 2.0
"""Variance of a median over that of a mean, of many normal values."""
PRIOR: Final = 2.0
"""Bursts that all other cases count for, beside a case's own."""
UNKNOWN: Final = 0.3
"""Relative standard deviation of a burst before two bursts of any case are there: that of a busy machine."""
LEAST: Final = 0.005
"""Relative standard deviation that is always allowed for: clocks move with temperature."""


def pooled_deviation(found: Iterable[Sequence[float]]) -> float:
    """Relative standard deviation of burst medians, over all cases of two bursts or more."""
    squares, freedom = 0.0, 0
    for bursts in found:
        if len(bursts) > 1:
            squares += _squares(bursts)
            freedom += len(bursts) - 1
    return max(math.sqrt(squares / freedom), LEAST) if freedom else UNKNOWN


def half_width(bursts: Sequence[float], pooled: float) -> float:
    """Half of the 90 % interval over the median, from the medians of a case's bursts."""
    freedom = PRIOR + len(bursts) - 1
    deviation = math.sqrt((PRIOR * pooled**2 + _squares(bursts)) / freedom)
    efficiency = OF_MEDIAN if len(bursts) > 2 else 1.0
    return NORMAL_95 * max(deviation, LEAST) * math.sqrt(2.0 * efficiency / len(bursts))


def interval(bursts: Sequence[float], pooled: float) -> tuple[float, float, float]:
    """(median, low, high), never below 0."""
    centre = median(bursts)
    half = half_width(bursts, pooled)
    return centre, centre * max(0.0, 1.0 - half), centre * (1.0 + half)


def agreement(first: Mapping[str, tuple[float, float, float]], second: Mapping[str, float]) -> float:
    """Share of the second profile's medians that lie in the first's intervals (median, low, high)."""
    shared = [key for key in first if key in second]
    inside = sum(first[key][1] <= second[key] <= first[key][2] for key in shared)
    return inside / len(shared) if shared else math.nan


def _squares(bursts: Sequence[float]) -> float:
    centre = median(bursts)
    return sum((burst / centre - 1.0) ** 2 for burst in bursts) if centre > 0.0 else 0.0
