"""How far off predictions are: spreads that make 90 % intervals hold and no wider than they need to be."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Final

from planner.intervals import NORMAL_95
from planner.validation.calibrate.fit import Calibration, Left
from planner.validation.calibrate.parameters import EXPECTED

COVERED: Final = 0.9
ASKED: Final = 0.91
"""Share of the errors that the intervals must hold: a little more than their 90 %, as few rows are few."""

FEWEST: Final = 5
"""Rows below which no spread of their own is taken."""

MISSED: Final = 2.0 / (1.0 - COVERED)
"""Cost of a log error outside the interval for each unit of its width (Winkler 1972)."""

GRID: Final = (
    tuple(round(0.02 + 0.005 * i, 3) for i in range(25)),
    tuple(round(0.1 * i, 1) for i in range(11)),
    tuple(round(0.005 + 0.0025 * i, 4) for i in range(7)),
)
"""Spreads tried for dense models: of their own, of communication that shows, and for every doubling of the devices,
which is never nothing: what slows thousands of devices is not seen on eight."""


@dataclass(frozen=True, slots=True)
class Spreads:
    """Figures of uncertainty.toml by name, and the generations that have constants of their own."""

    figures: Mapping[str, float]
    generations: tuple[str, ...]


def spreads_of(found: Calibration) -> Spreads:
    """Spreads of known software and devices, of mixtures with the row left out, and what the errors grow by where a
    source, or the only source of an architecture, is left out."""
    rows = found.rows
    dense = [left for left in rows if not _is_mixture(left) and not _is_vision(left)]
    vision = [left for left in rows if _is_vision(left)]
    base = dense_spreads(dense)
    by_row = [left for left in rows if _is_mixture(left) and left.by_row is not None]
    outside = sigma([left for left in dense if not left.alone], lambda left: left.by_source, base[1:])
    alone = sigma([left for left in dense if left.alone], lambda left: left.by_source, base[1:])
    figures = {
        "dense": base[0],
        "moe": max(base[0], sigma(by_row, lambda left: left.by_row or 0.0, base[1:])),
        "vision": max(base[0], sigma(vision, lambda left: left.inside, base[1:])),
        "communication": base[1],
        "doubling": base[2],
        "unseen_generation": _beyond(outside, base[0]),
        "unseen_device": max(EXPECTED["architecture", "matmul"].log_sigma, _beyond(alone, outside)),
        "own": min(0.9, _own(dense) / base[0]),
    }
    return Spreads(figures, tuple(sorted({left.case.situation.generation.name for left in rows})))


def dense_spreads(rows: Sequence[Left]) -> tuple[float, float, float]:
    """The three spreads of the grid under which the intervals hold and cost least: over errors in sample and, where
    another source knows the architecture, over those with the source left out, as predictions are asked of both."""
    best = min(product(*GRID), key=lambda spreads: _cost(rows, *spreads))
    return best[0], best[1], best[2]


def _cost(rows: Sequence[Left], own: float, communication: float, doubling: float) -> tuple[bool, float]:
    """(whether the intervals hold too few rows, mean of width and misses)."""
    inside, total, count = 0, 0.0, 0
    for left in rows:
        half = NORMAL_95 * math.hypot(own, communication * left.communication, doubling * left.doublings)
        for error in (left.inside,) if left.alone else (left.inside, left.by_source):
            beyond = abs(error) - half
            count, inside = count + 1, inside + (beyond <= 0.0)
            total += 2.0 * half + MISSED * max(beyond, 0.0)
    return inside < ASKED * count, total / max(count, 1)


def sigma(
    rows: Sequence[Left], error: Callable[[Left], float], beside: tuple[float, float] = (0.0, 0.0)
) -> float:
    """The spread of a kind that covers 90 % of the rows beside those of communication and of size; 0 for too few."""
    if len(rows) < FEWEST:
        return 0.0
    needed = sorted(
        math.sqrt(
            max(
                (error(left) / NORMAL_95) ** 2
                - (beside[0] * left.communication) ** 2
                - (beside[1] * left.doublings) ** 2,
                0.0,
            )
        )
        for left in rows
    )
    return needed[math.ceil(COVERED * len(needed)) - 1]


def _beyond(whole: float, part: float) -> float:
    return math.sqrt(max(whole**2 - part**2, 0.0))


def _own(rows: Sequence[Left]) -> float:
    """Spread of a layout's own: errors around the mean of their question (source, model, devices, batch)."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for left in rows:
        run = left.case.run
        key = tuple(run.text(name) for name in ("model", "gpu", "n_gpus", "seq_len", "precision"))
        groups.setdefault((run.source, *key), []).append(left.inside)
    around = sorted(
        abs(error - fmean(found)) for found in groups.values() if len(found) > 1 for error in found
    )
    if not around:
        return 0.0
    return around[math.ceil(COVERED * len(around)) - 1] / NORMAL_95


def _is_mixture(left: Left) -> bool:
    return left.case.situation.model.is_moe


def _is_vision(left: Left) -> bool:
    return left.case.situation.model.is_vision
