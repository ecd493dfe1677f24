"""How many micro-batches' activations every rank holds at once, counted on the operation lists.

A saved tensor lives from its forward's start to the end of the pass that reads it last.  Where the backward is
split there are two such passes, so a rank holds two kinds of micro-batches per chunk:

    waiting   forward started, input gradient (or whole backward) not ended: everything that was saved
    halfway   input gradient ended, weight gradient not: what the weight gradient reads, the layers' inputs
              that were saved and the gradients of their outputs that the input gradient made
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import IntArray, operation_table, representative_micro_batches
from cost_models.schedule.rank_list import Phase
from cost_models.schedule.rules import check_legal

Vector = tuple[int, ...]

_COMPARED = 64
"""Vectors that are compared with all others in one go."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """Activations held by each rank, in micro-batches per chunk.

    Every moment's vector is at most one of the listed ones in every entry, so a maximum of any non-negative
    weighting over them is the true peak.

    Attributes:
        vectors: of every rank, Pareto-maximal vectors of length v of micro-batches whose backward has not ended
            (waiting or halfway).
        split_vectors: of every rank, Pareto-maximal vectors of length 2 v: waiting per chunk, then halfway per
            chunk; the second half is 0 where the schedule splits no backward.
    """

    vectors: tuple[tuple[Vector, ...], ...]
    split_vectors: tuple[tuple[Vector, ...], ...]

    def peak_total(self, rank: int) -> int:
        """Largest number of chunk activations the rank holds at one moment, summed over its chunks."""
        return max(sum(vector) for vector in self.vectors[rank])


def in_flight(schedule: ScheduleName, p: int, v: int, m: int) -> InFlight:
    """In-flight vectors of every rank; see the module for what is counted from when to when."""
    check_legal(schedule, p, v, m)
    return _counted(schedule, p, v, representative_micro_batches(schedule, p, m))


@lru_cache(maxsize=4096)
def _counted(schedule: ScheduleName, p: int, v: int, m: int) -> InFlight:
    table = operation_table(schedule, p, v, m)
    runs_chunk = table.chunk[:, :, None] == np.arange(v)
    phase = table.phase[:, :, None]
    started = np.cumsum(runs_chunk & (phase == Phase.FORWARD), axis=1)
    fused = runs_chunk & (phase == Phase.BACKWARD)
    input_ended = _ended(fused | (runs_chunk & (phase == Phase.INPUT_GRADIENT)))
    all_ended = _ended(fused | (runs_chunk & (phase == Phase.WEIGHT_GRADIENT)))
    held = started - all_ended
    both = np.concatenate((started - input_ended, input_ended - all_ended), axis=2)
    vectors = tuple(_pareto_maximal(held[rank]) for rank in range(p))
    if not schedule.splits_backward:
        zeros = (0,) * v
        return InFlight(vectors, tuple(tuple(row + zeros for row in rows) for rows in vectors))
    return InFlight(vectors, tuple(_pareto_maximal(both[rank]) for rank in range(p)))


def _ended(ends: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> IntArray:
    """Passes that ended before each operation: a running one still holds its activation."""
    before = np.zeros(ends.shape, dtype=np.int64)
    np.cumsum(ends[:, :-1], axis=1, out=before[:, 1:])
    return before


def _pareto_maximal(vectors: IntArray) -> tuple[Vector, ...]:
    """Rows of an (n, v) array that no other row exceeds or equals in every column."""
    if vectors.shape[1] == 1:
        return ((int(vectors.max()),),)
    # A row that is followed by a larger one cannot be maximal; what is left is a few distinct rows.
    grows = np.zeros(len(vectors), dtype=bool)
    grows[:-1] = (vectors[1:] >= vectors[:-1]).all(axis=1)
    rows = np.unique(vectors[~grows], axis=0)[::-1]
    reached = np.concatenate(
        [
            (rows[None] >= rows[first : first + _COMPARED, None]).all(axis=2).sum(axis=1)
            for first in range(0, len(rows), _COMPARED)
        ]
    )
    return tuple(tuple(row) for row in rows[reached == 1].tolist())  # each reaches itself
