"""How far off predictions are: spreads under which 90 % intervals hold, narrow where runs are near, wide where not.

log(measured / predicted) has the variance scale^2 (noise^2 + unknown^2) + (communication share)^2 + (doubling n)^2.
`unknown` is what the fit says of the constants (support.py), noise what is left of the runs of a generation of
software; scale, communication and the noise before any run is seen are the narrowest of a grid under which the
intervals hold.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, median
from typing import Final

from cost_models.specs.generations import OTHER
from planner.intervals import NORMAL_95
from planner.validation.calibrate.fit import NOISY_TIMES, Calibration, Left
from planner.validation.calibrate.support import of_kind, support_table

KINDS: Final = ("dense", "moe", "vision")
BY_RELEASE: Final = ("moe",)
"""Kinds whose runs of other releases of one generation's software say little: a release moves mixtures by half."""

COVERED: Final = 0.9
ASKED: Final = 0.91
"""Share of the errors of rows left out one by one, and of rows that nothing was fitted to, that the intervals must
hold: a little more than their 90 %, as few rows are few."""

PRIOR_ROWS: Final = 4.0
"""Rows that the noise before any run is seen counts as, against those of a generation."""

OUTLYING: Final = 3.0
"""Errors count as at most so many times the noise expected: one odd run says little of the others."""

FEWEST: Final = 5
"""Rows below which a kind has the spreads of dense models."""

MOST_VOTES: Final = 20
"""Rows of a source that nothing was fitted to count as at most so many."""

MOST_UNSEEN: Final = 2.0
"""Intervals of unseen software are at most so many times as wide: mixtures whose experts exchange tokens eagerly were
off by a factor of three when nothing was known of them, and no useful width holds that."""

NOISES: Final = tuple(round(0.02 + 0.01 * i, 2) for i in range(9))
COMMUNICATIONS: Final = tuple(round(0.1 * i, 1) for i in range(11))
SCALES: Final = tuple(round(0.8 + 0.1 * i, 1) for i in range(9))
DOUBLING: Final = 0.005
"""[Empirical] for every doubling of the devices, never nothing: what slows thousands is not seen on eight."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Noise before any run is seen, of a second of communication that shows, and what both it and the unknown constants
    are multiplied by."""

    noise: float
    communication: float
    scale: float


@dataclass(frozen=True, slots=True)
class KindSpreads:
    """What uncertainty.toml holds of one kind of model."""

    spread: Spread
    table: Mapping[str, tuple[float, ...]]

    @property
    def noise(self) -> float:
        """Noise of a generation that was not fitted."""
        return round(self.spread.scale * self.spread.noise, 4)


@dataclass(frozen=True, slots=True)
class Spreads:
    """What uncertainty.toml holds."""

    kinds: Mapping[str, KindSpreads]
    own: float
    generations: tuple[str, ...]


def spreads_of(found: Calibration) -> Spreads:
    """Spreads by kind of model, and the share of a layout's own."""
    generations = tuple(sorted({generation_of(left) for left in (*found.rows, *_noisy(found))}))
    dense = fitted_spread(of_kind(found.rows, "dense"), of_kind(found.others, "dense"))
    kinds: dict[str, KindSpreads] = {}
    for kind in KINDS:
        rows = of_kind(found.rows, kind)
        if len(rows) < FEWEST:
            kinds[kind] = kinds.get(
                "dense", KindSpreads(dense, {OTHER: (dense.noise,) * (len(generations) + 1)})
            )
            continue
        others = of_kind(found.others, kind)
        spread = fitted_spread(rows, () if kind in BY_RELEASE else others)
        noises = noises_of(rows, spread) | _noises_alone(of_kind(_noisy(found), kind))
        columns = {name: noises.get(name, spread.noise) for name in (*generations, OTHER)}
        plain = KindSpreads(spread, support_table(found, kind, columns, spread.scale))
        wider = unseen_ratio([*rows, *others], plain, noises)
        table = {
            name: tuple(
                value if generation in noises else round(wider * value, 4)
                for generation, value in zip(columns, row, strict=True)
            )
            for name, row in plain.table.items()
        }
        kinds[kind] = KindSpreads(spread, table)
    own = min(0.9, _own(of_kind(found.rows, "dense")) / kinds["dense"].noise)
    return Spreads(kinds, own, generations)


def _noisy(found: Calibration) -> list[Left]:
    return [left for left in found.others if left.case.run.source in NOISY_TIMES]


def _noises_alone(rows: Sequence[Left]) -> dict[str, float]:
    """Noise of generations whose rows say nothing but how noisy they are: their root mean square."""
    names = sorted({generation_of(left) for left in rows})
    return {
        name: math.sqrt(fmean(left.without**2 for left in rows if generation_of(left) == name))
        for name in names
    }


def unseen_ratio(rows: Sequence[Left], known: KindSpreads, noises: Mapping[str, float]) -> float:
    """How much wider intervals of software that no run shows must be than noise and unknown constants say, so that they
    hold the rows whose source was left out, and rows of generations that nothing was fitted to."""
    ratios: list[tuple[float, str]] = []
    for left in rows:
        if generation_of(left) in noises and (left.near == 0.0 or not _only_of_its_source(left, rows)):
            continue
        device = left.case.situation.cluster.device
        row = known.table[device.name if device.name in known.table else device.architecture]
        beside = math.hypot(known.spread.communication * left.communication, DOUBLING * left.doublings)
        needed = math.sqrt(max((left.by_source / NORMAL_95) ** 2 - beside**2, 0.0))
        ratios.append((needed / row[-1], left.case.run.source))
    if len(ratios) < FEWEST:
        return 1.0
    return min(max(_quantile(ratios), 1.0), MOST_UNSEEN)


def _quantile(ratios: Sequence[tuple[float, str]]) -> float:
    """The ratio that ASKED of the rows do not exceed; rows of a source count as at most FEWEST."""
    crowd = Counter(source for _, source in ratios)
    votes = {source: min(1.0, FEWEST / count) for source, count in crowd.items()}
    whole, seen = sum(votes[source] for _, source in ratios), 0.0
    for ratio, source in sorted(ratios):
        seen += votes[source]
        if seen >= ASKED * whole:
            return ratio
    return max(ratio for ratio, _ in ratios)


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a kind, the share of their errors inside the 90 % interval and its median half-width: each row left out,
    and its whole source left out (None for fewer than FEWEST rows)."""

    rows: int
    by_row: float
    by_row_half: float
    by_source: float
    by_source_half: float


def held(found: Calibration, kind: str) -> Held | None:
    """How intervals hold errors that their constants have not seen."""
    rows = of_kind(found.rows, kind)
    if len(rows) < FEWEST:
        return None
    spread = fitted_spread(rows, () if kind in BY_RELEASE else of_kind(found.others, kind))
    noises = noises_of(rows, spread)
    near = [_half(left, spread, noises[generation_of(left)], left.near) for left in rows]
    far = [
        _half(
            left,
            spread,
            spread.noise if _only_of_its_source(left, rows) else noises[generation_of(left)],
            left.far,
        )
        for left in rows
    ]
    return Held(
        len(rows),
        fmean(abs(left.without) <= half for left, half in zip(rows, near, strict=True)),
        median(map(math.expm1, near)),
        fmean(abs(left.by_source) <= half for left, half in zip(rows, far, strict=True)),
        median(map(math.expm1, far)),
    )


def generation_of(left: Left) -> str:
    """The generation of software whose constants price a row."""
    return left.case.situation.generation.name


def fitted_spread(rows: Sequence[Left], others: Sequence[Left] = ()) -> Spread:
    """The spread of the grid under which the intervals hold and are narrowest, in the mean of their logarithms: over
    fitted rows, each left out, and over `others` of their generations that nothing was fitted to."""
    if len(rows) < FEWEST:
        return Spread(0.05, 0.5, 1.0)
    near: dict[str, list[float]] = {}
    for left in rows:
        near.setdefault(generation_of(left), []).append(left.near)
    known = [
        replace(left, near=median(near[generation_of(left)]))
        for left in others
        if generation_of(left) in near
    ]
    tried = [Spread(*values) for values in product(NOISES, COMMUNICATIONS, SCALES)]
    return min(tried, key=lambda spread: _cost(rows, known, spread))


def _cost(rows: Sequence[Left], others: Sequence[Left], spread: Spread) -> tuple[float, float]:
    """(errors that lie outside beyond what is allowed, sum of the logarithms of the widths)."""
    noises = noises_of(rows, spread)
    halves = [_half(left, spread, noises[generation_of(left)], left.near) for left in rows]
    inside = sum(abs(left.without) <= half for left, half in zip(rows, halves, strict=True))
    crowd = Counter(left.case.run.source for left in others)
    votes = [min(1.0, MOST_VOTES / crowd[left.case.run.source]) for left in others]
    beside = sum(
        vote * (abs(left.without) <= _half(left, spread, noises[generation_of(left)], left.near))
        for left, vote in zip(others, votes, strict=True)
    )
    lacking = max(ASKED * len(rows) - inside, 0.0) + max(ASKED * sum(votes) - beside, 0.0)
    return lacking, sum(map(math.log, halves))


def _half(left: Left, spread: Spread, noise: float, constants: float) -> float:
    """Half of the 90 % interval of a row, in the logarithm."""
    known = spread.scale * math.hypot(noise, constants)
    return NORMAL_95 * math.hypot(known, spread.communication * left.communication, DOUBLING * left.doublings)


def noises_of(rows: Sequence[Left], spread: Spread) -> dict[str, float]:
    """Noise of every generation: the mean square of its rows left out one by one, and the one expected."""
    found = {}
    for name in sorted({generation_of(left) for left in rows}):
        squares = [_noise_square(left, spread) for left in rows if generation_of(left) == name]
        whole = PRIOR_ROWS * spread.noise**2 + sum(squares)
        found[name] = math.sqrt(whole / (PRIOR_ROWS + len(squares)))
    return found


def _noise_square(left: Left, spread: Spread) -> float:
    error = min(abs(left.without), OUTLYING * spread.noise)
    explained = (spread.communication * left.communication) ** 2 + (DOUBLING * left.doublings) ** 2
    return max(error**2 - explained, 0.0)


def _only_of_its_source(left: Left, rows: Sequence[Left]) -> bool:
    """Whether no other source shows the row's generation."""
    return {other.case.run.source for other in rows if generation_of(other) == generation_of(left)} == {
        left.case.run.source
    }


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
