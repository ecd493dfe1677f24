"""How far off rows are that a fit has not seen: spreads under which 90 % intervals hold, and how well they do.

log(measured / predicted) has the standard deviation scale x hypot(noise, unknown, communication x share that shows).
`unknown` is what the fit says of the constants (support.py), noise what is left of the runs of a generation of
software, scale the one under which 90 % intervals hold 90 % of runs that the fit has not seen, whatever the shape of
their errors (conformal prediction: Vovk, Gammerman and Shafer 2005; with a spread by row, Lei et al. 2018).
Communication is chosen by the interval score (Gneiting and Raftery 2007, equation 43), which rewards narrow intervals
and charges what lies outside.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Final

from planner.intervals import NORMAL_95
from planner.validation.calibrate.fit import Calibration, Left
from planner.validation.calibrate.support import of_kind

KINDS: Final = ("dense", "moe", "vision")

COVERED: Final = 0.9
"""Share of the errors that intervals hold."""

PRIOR_ROWS: Final = 4.0
"""Rows that the noise of all generations in the mean counts as, against those of one."""

FEWEST: Final = 5
"""Rows below which a kind has the spreads of dense models."""

MOST_VOTES: Final = 20
"""Rows of a source that nothing was fitted to count as at most so many."""

COMMUNICATIONS: Final = tuple(round(0.05 * i, 2) for i in range(11))
LEAST_NOISE: Final = 0.01
"""Noise below this is luck: runs repeated by one source differ by more."""

Vote = tuple[Left, float]
"""A row and the number of rows that it counts as."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Noise of software that no run shows, of a second of communication that shows, what all is multiplied by, and the
    noise of every generation with runs."""

    noise: float
    communication: float
    scale: float
    noises: Mapping[str, float] = field(default_factory=dict)

    def half(self, left: Left, constants: float) -> float:
        """Half of the 90 % interval of a row in the logarithm, the unknown constants being so uncertain."""
        noise = self.noises.get(generation_of(left), self.noise)
        return NORMAL_95 * self.scale * math.hypot(noise, constants, self.communication * left.communication)


ASSUMED: Final = Spread(0.05, 0.0, 1.0)
"""Where hardly any run is known."""


def generation_of(left: Left) -> str:
    """The generation of software whose constants price a row."""
    return left.case.situation.generation.name


def fitted_spreads(found: Calibration) -> dict[str, Spread]:
    """The spreads of every kind with enough rows, over fitted rows, each left out, and over others of their generations
    that nothing was fitted to. Communication is a matter of links, not of models: of all kinds together it has the
    value with the least interval score."""
    votes = {}
    for kind in KINDS:
        rows = of_kind(found.rows, kind)
        if len(rows) >= FEWEST:
            votes[kind] = _votes_of(rows, of_kind(found.others, kind))
    tried = [{kind: _spread_under(value, some) for kind, some in votes.items()} for value in COMMUNICATIONS]
    return min(tried, key=lambda spreads: sum(_score(one, votes[kind]) for kind, one in spreads.items()))


def votes_of(rows: Sequence[Left], most: int) -> list[Vote]:
    """Rows, those of one source counting as at most so many."""
    crowd = Counter(left.case.run.source for left in rows)
    return [(left, min(1.0, most / crowd[left.case.run.source])) for left in rows]


def _holding(ratios: Sequence[tuple[float, float]]) -> float:
    """The ratio that the next of n + 1 rows does not exceed with probability COVERED: of n, COVERED (n + 1) / n."""
    return quantile(ratios, COVERED * (1.0 + 1.0 / _count(ratios)))


def _votes_of(rows: Sequence[Left], others: Sequence[Left]) -> list[Vote]:
    near: dict[str, list[float]] = {}
    for left in rows:
        near.setdefault(generation_of(left), []).append(left.near)
    typical = {name: median(some) for name, some in near.items()}
    known = [
        replace(left, near=typical[generation_of(left)]) for left in others if generation_of(left) in typical
    ]
    return [*((left, 1.0) for left in rows), *votes_of(known, MOST_VOTES)]


def _spread_under(communication: float, votes: Sequence[Vote]) -> Spread:
    """The spread whose intervals hold COVERED of the rows, a second of communication that shows being so uncertain."""
    rest: dict[str, list[tuple[float, float]]] = {}
    for left, vote in votes:
        square = max(left.without**2 - (communication * left.communication) ** 2, LEAST_NOISE**2)
        rest.setdefault(generation_of(left), []).append((square, vote))
    # the noise that holds COVERED of a generation's rows, and the mean of all generations
    own = {name: quantile(squares, COVERED) / NORMAL_95**2 for name, squares in rest.items()}
    alike = fmean(own.values())
    noises = {}
    for name, squares in rest.items():
        count = _count(squares)
        noises[name] = math.sqrt((PRIOR_ROWS * alike + count * own[name]) / (PRIOR_ROWS + count))
    plain = Spread(math.sqrt(alike), communication, 1.0, noises)
    ratios = [(abs(left.without) / plain.half(left, left.near), vote) for left, vote in votes]
    return replace(plain, scale=_holding(ratios))


def _score(spread: Spread, votes: Sequence[Vote]) -> float:
    """The interval score in all, halved: widths, and what lies outside over the share that may."""
    halves = [spread.half(left, left.near) for left, _ in votes]
    return sum(
        vote * (half + max(abs(left.without) - half, 0.0) / (1.0 - COVERED))
        for (left, vote), half in zip(votes, halves, strict=True)
    )


def quantile(values: Sequence[tuple[float, float]], share: float) -> float:
    """The value that this share of the votes do not exceed, the largest where none is."""
    whole, seen = _count(values), 0.0
    for value, vote in sorted(values):
        seen += vote
        if seen >= share * whole - 1e-9:
            return value
    return max(value for value, _ in values)


def _count(votes: Sequence[tuple[float, float]]) -> float:
    return sum(vote for _, vote in votes)


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a kind, the share of their errors inside the 90 % interval and its median half-width: each row left out
    of the fit and of the spread, and its whole source left out of both."""

    rows: int
    by_row: float
    by_row_half: float
    by_source: float
    by_source_half: float


def held(found: Calibration, kind: str) -> Held | None:
    """How intervals hold errors that neither constants nor spreads have seen; None for fewer than FEWEST rows."""
    rows = of_kind(found.rows, kind)
    if len(rows) < FEWEST:
        return None
    of_source: dict[str, set[str]] = {}
    for left in (*found.rows, *found.others):
        of_source.setdefault(left.case.run.source, set()).add(left.case.run.id)
    elsewhere = {source: _spread_without(found, kind, of_source[source]) for source in found.sources}
    near = [_spread_without(found, kind, {left.case.run.id}).half(left, left.near) for left in rows]
    far = [elsewhere[left.case.run.source].half(left, left.far) for left in rows]
    return Held(
        len(rows),
        fmean(abs(left.without) <= half for left, half in zip(rows, near, strict=True)),
        median(map(math.expm1, near)),
        fmean(abs(left.by_source) <= half for left, half in zip(rows, far, strict=True)),
        median(map(math.expm1, far)),
    )


def _spread_without(found: Calibration, kind: str, gone: Set[str]) -> Spread:
    """The spread of a kind that runs of these ids do not shape."""
    rows, others = (
        tuple(left for left in some if left.case.run.id not in gone) for some in (found.rows, found.others)
    )
    return fitted_spreads(replace(found, rows=rows, others=others)).get(kind, ASSUMED)
