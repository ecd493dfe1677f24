"""Seconds and shares as whole numbers for the integer solver, always rounded so that the model stays a relaxation."""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array, Index

# Rounding loses at most one unit a term; with this many terms' worth of units per gap it stays under 1 % of the gap.
_UNITS_PER_TERM = 100.0
_FEWEST_UNITS, _MOST_UNITS = 1e7, 1e11


@dataclass(frozen=True, slots=True)
class Scale:
    """Whole units per second (or per share)."""

    per_unit: float

    @classmethod
    def for_target(cls, target: float, terms: int, gap: float) -> "Scale":
        """Enough units for `target` that rounding `terms` terms down stays far below the gap."""
        units = float(np.clip(_UNITS_PER_TERM * terms / max(gap, 1e-12), _FEWEST_UNITS, _MOST_UNITS))
        return cls(units / target)

    def down(self, values: Array) -> list[int]:
        """Rounded down: costs."""
        whole: list[int] = np.floor(values * self.per_unit).astype(np.int64).tolist()
        return whole

    def down_one(self, value: float) -> int:
        """Rounded down: one cost."""
        return int(np.floor(value * self.per_unit))

    def up(self, value: float) -> int:
        """Rounded up: caps."""
        return int(np.ceil(value * self.per_unit))


@dataclass(frozen=True, slots=True)
class LinearTables:
    """Whole-number lower bounds on G tables: constants[g] + slopes[g] x + terms[g, x] (zero where absent)."""

    slopes: Index
    constants: Index
    terms: dict[tuple[int, int], int]


def tables_on_domains(tables: Array, low: Index, high: Index, scale: Scale) -> LinearTables:
    """Lower bounds on tables (G, positions), each for x in [low[g], high[g]]."""
    slopes, constants = np.zeros(len(low), dtype=np.int64), np.zeros(len(low), dtype=np.int64)
    terms: dict[tuple[int, int], int] = {}
    width = high - low + 1
    for wide in np.unique(width).tolist():
        members = np.flatnonzero(width == wide)
        positions = low[members, None] + np.arange(wide)[None, :]
        lines, offsets, bends = _lines(tables[members[:, None], positions] * scale.per_unit, positions)
        slopes[members], constants[members] = lines, offsets
        for at, column in np.argwhere(bends).tolist():
            terms[int(members[at]), int(positions[at, column])] = int(bends[at, column])
    return LinearTables(slopes, constants, terms)


def _lines(scaled: Array, positions: Index) -> tuple[Index, Index, Index]:
    """Slope, constant and terms of tables (G, W).

    The slope is that of most positions; there the rounding of the slope is in the constant, elsewhere a term of
    the position makes up the difference. constant + slope x + term <= value everywhere.
    """
    if scaled.shape[1] == 1:
        none = np.zeros(len(scaled), dtype=np.int64)
        return none, np.floor(scaled[:, 0]).astype(np.int64), none[:, None]
    slope = _middle(np.diff(scaled, axis=1))
    rest = scaled - slope * positions
    tolerance = 1e-9 * np.abs(scaled).max(axis=1, keepdims=True) + 1e-6
    common = np.abs(rest - _middle(rest)) <= tolerance
    whole = np.round(slope)
    left = scaled - whole * positions
    constants = np.floor(np.where(common, left, np.inf).min(axis=1, keepdims=True))
    terms = np.where(common, 0.0, np.floor(left - constants)).astype(np.int64)
    return whole[:, 0].astype(np.int64), constants[:, 0].astype(np.int64), terms


def _middle(values: Array) -> Array:
    """Lower median of every row, shape (G, 1): a value that occurs."""
    place = (values.shape[1] - 1) // 2
    middle: Array = np.partition(values, place, axis=1)[:, place : place + 1]
    return middle
