"""How many micro-batches' activations every rank holds at once, counted on the operation lists."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import IntArray, operation_table, representative_micro_batches
from cost_models.schedule.rank_list import Phase
from cost_models.schedule.rules import check_legal


@dataclass(frozen=True, slots=True)
class InFlight:
    """Activations held by each rank, in micro-batches per chunk.

    `vectors[rank]` are the Pareto-maximal vectors of length v over the step: every moment's vector is at
    most one of them in every chunk, so a maximum of any non-negative weighting over them is the true peak.
    """

    vectors: tuple[tuple[tuple[int, ...], ...], ...]

    def peak_total(self, rank: int) -> int:
        """Largest number of chunk activations the rank holds at one moment, summed over its chunks."""
        return max(sum(vector) for vector in self.vectors[rank])


def in_flight(schedule: ScheduleName, p: int, v: int, m: int) -> InFlight:
    """In-flight vectors of every rank; an activation lives from its forward's start to its backward's end."""
    check_legal(schedule, p, v, m)
    return _counted(schedule, p, v, representative_micro_batches(schedule, p, m))


@lru_cache(maxsize=4096)
def _counted(schedule: ScheduleName, p: int, v: int, m: int) -> InFlight:
    table = operation_table(schedule, p, v, m)
    runs_chunk = table.chunk[:, :, None] == np.arange(v)
    is_forward = (table.phase == Phase.FORWARD)[:, :, None]
    started = np.cumsum(runs_chunk & is_forward, axis=1)
    ended = np.cumsum(runs_chunk & ~is_forward, axis=1)
    held = started
    held[:, 1:] -= ended[:, :-1]  # a running backward still holds its activation
    return InFlight(tuple(_pareto_maximal(held[rank]) for rank in range(p)))


def _pareto_maximal(vectors: IntArray) -> tuple[tuple[int, ...], ...]:
    """Rows of an (n, v) array that no other row exceeds or equals in every column."""
    if vectors.shape[1] == 1:
        return ((int(vectors.max()),),)
    # A row that is followed by a larger one cannot be maximal; what is left is a few distinct rows.
    grows = np.zeros(len(vectors), dtype=bool)
    grows[:-1] = (vectors[1:] >= vectors[:-1]).all(axis=1)
    rows = sorted(set(map(tuple, vectors[~grows].tolist())), reverse=True)
    kept: list[tuple[int, ...]] = []
    for row in rows:  # descending order: only an earlier row can exceed a later one everywhere
        if not any(all(a >= b for a, b in zip(other, row, strict=True)) for other in kept):
            kept.append(row)
    return tuple(kept)
