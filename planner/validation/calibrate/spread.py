"""What uncertainty.toml says: how far off predictions are, by kind of model, device and software, from fitted spreads.

Narrow where runs are near, wide where not (noise.py: how wide, support.py: how near). Software and architectures that
no fitted run shows are widened to what public runs of such kinds show (profiles/published/unseen.csv): new sources err
by more than what fitted ones have in common.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Final

from cost_models.specs.generations import OTHER
from planner.intervals import NORMAL_95
from planner.validation.calibrate.fit import NOISY_TIMES, Calibration, Left
from planner.validation.calibrate.noise import (
    ASSUMED,
    COVERED,
    FEWEST,
    KINDS,
    Spread,
    fitted_spreads,
    generation_of,
    quantile,
    votes_of,
)
from planner.validation.calibrate.support import device_rows, of_kind, support_table

MOST_UNSEEN: Final = 2.0
"""Intervals of unseen software are at most so many times as wide: mixtures whose experts exchange tokens eagerly were
off by a factor of three when nothing was known of them, and no useful width holds that."""

DOUBLING: Final = 0.005
"""[Empirical] for every doubling of the devices beyond the largest run of a generation. In the 21 published series of
weak scaling the median error of the predicted loss is 0.35 % a doubling, 0.5 % as a standard deviation."""


@dataclass(frozen=True, slots=True)
class KindSpreads:
    """What uncertainty.toml holds of a kind of model; `table` and `largest` are by generation, other software last."""

    spread: Spread
    table: Mapping[str, tuple[float, ...]]
    largest: tuple[int, ...]

    @property
    def noise(self) -> float:
        """Noise of a generation that was not fitted."""
        return round(self.spread.scale * self.spread.noise, 4)

    @property
    def communication(self) -> float:
        """Of a second of communication that shows."""
        return round(self.spread.scale * self.spread.communication, 4)


@dataclass(frozen=True, slots=True)
class Spreads:
    """What uncertainty.toml holds."""

    kinds: Mapping[str, KindSpreads]
    own: float
    generations: tuple[str, ...]


def spreads_of(found: Calibration) -> Spreads:
    """Spreads by kind of model, and the share of a layout's own."""
    generations = tuple(sorted({generation_of(left) for left in (*found.rows, *_noisy(found))}))
    columns = len(generations) + 1
    assumed = KindSpreads(ASSUMED, {OTHER: (ASSUMED.noise,) * columns}, (1,) * columns)
    fitted = fitted_spreads(found)
    kinds: dict[str, KindSpreads] = {}
    for kind in KINDS:
        if kind in fitted:
            kinds[kind] = _kind_spreads(found, kind, fitted[kind], generations)
        else:
            kinds[kind] = kinds.get("dense", assumed)
    own = min(0.9, _own(of_kind(found.rows, "dense")) / kinds["dense"].noise)
    return Spreads(kinds, own, generations)


def _kind_spreads(found: Calibration, kind: str, spread: Spread, generations: Sequence[str]) -> KindSpreads:
    fitted = of_kind(found.rows, kind)
    rows = [*fitted, *of_kind(found.others, kind)]
    noises = {**spread.noises, **_noises_alone(of_kind(_noisy(found), kind))}
    columns = {name: noises.get(name, spread.noise) for name in (*generations, OTHER)}
    sizes: dict[str, int] = {}
    for left in rows:
        name, devices = generation_of(left), left.case.situation.cluster.num_devices
        sizes[name] = max(sizes.get(name, 1), devices)
    largest = tuple(sizes.get(name, max(sizes.values())) for name in columns)
    plain = KindSpreads(spread, support_table(found, kind, columns, spread.scale), largest)
    shown = {left.case.architecture for left in fitted}
    rows += of_kind(found.unseen, kind)
    new_software = [
        left for left in rows if left.case.architecture in shown and _is_unseen(left, fitted, noises)
    ]
    new_devices = [left for left in rows if left.case.architecture not in shown]
    wider = {
        True: unseen_ratio(new_software, plain, tuple(columns)),
        False: unseen_ratio(new_devices, plain, tuple(columns)),
    }
    table = {}
    for name, (_, architecture) in device_rows(found, kind).items():
        known = architecture in shown
        table[name] = tuple(
            value if known and generation in noises else round(wider[known] * value, 4)
            for generation, value in zip(columns, plain.table[name], strict=True)
        )
    return replace(plain, table=table)


def _noisy(found: Calibration) -> list[Left]:
    return [left for left in found.others if left.case.run.source in NOISY_TIMES]


def _noises_alone(rows: Sequence[Left]) -> dict[str, float]:
    """Noise of generations whose rows say nothing but how noisy they are: their root mean square."""
    names = sorted({generation_of(left) for left in rows})
    return {
        name: math.sqrt(fmean(left.without**2 for left in rows if generation_of(left) == name))
        for name in names
    }


def _is_unseen(left: Left, fitted: Sequence[Left], noises: Mapping[str, float]) -> bool:
    """Whether the error of a row whose source is left out is one of software that no run shows."""
    return generation_of(left) not in noises or (left.near > 0.0 and _only_of_its_source(left, fitted))


def unseen_ratio(rows: Sequence[Left], known: KindSpreads, columns: Sequence[str]) -> float:
    """How much wider intervals must be than noise and unknown constants say, so that they hold rows whose source was
    left out, and rows that nothing was fitted to. Rows of one source err together: they have one vote."""
    if len(rows) < FEWEST:
        return 1.0
    ratios = [(abs(left.by_source) / _half(left, known, columns), vote) for left, vote in votes_of(rows, 1)]
    return min(max(quantile(ratios, COVERED), 1.0), MOST_UNSEEN)


def _half(left: Left, known: KindSpreads, columns: Sequence[str]) -> float:
    """Half of the 90 % interval of a row in the logarithm; a fitted row's software is taken as unseen."""
    device = left.case.situation.cluster.device
    row = next(known.table[n] for n in (device.name, device.architecture, OTHER) if n in known.table)
    generation = generation_of(left) if generation_of(left) in columns and left.near == 0.0 else OTHER
    return NORMAL_95 * math.hypot(row[columns.index(generation)], known.communication * left.communication)


def unseen_held(found: Calibration) -> tuple[float, float]:
    """Share of the runs never fitted to that are inside, and their median half-width, each source left out of what
    widens intervals of new software and architectures."""
    halves: list[tuple[bool, float]] = []
    for source in sorted({left.case.run.source for left in found.unseen}):
        own = [left for left in found.unseen if left.case.run.source == source]
        others = tuple(left for left in found.unseen if left.case.run.source != source)
        spreads = spreads_of(replace(found, unseen=others))
        for kind, known in spreads.kinds.items():
            for left in of_kind(own, kind):
                half = _half(left, known, (*spreads.generations, OTHER))
                halves.append((abs(left.without) <= half, math.expm1(half)))
    return fmean(inside for inside, _ in halves), median(half for _, half in halves)


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
