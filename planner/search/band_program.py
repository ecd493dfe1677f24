"""What the min-max programs over (rank, block) share, whether all ranks are alike (rank_program.py) or not (mixed)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.chunk import Array, Index, MeshCosts
from cost_models.schedule import ScheduleName
from planner.search.segments import Band

Bool = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ByStart:
    """Regroups a band (rows: where segments stop) by where segments start."""

    stop: Index
    column: Index
    outside: Bool

    @classmethod
    def of(cls, band: Band) -> "ByStart":
        """The places of a band's segments."""
        size, width = band.start.shape
        start, column = np.meshgrid(np.arange(size), np.arange(width), indexing="ij")
        stop = start + column + 1
        return cls(np.minimum(stop, size - 1), column, stop >= size)

    def least(self, values: Array) -> Array:
        """Minimum over all segments that start at each block."""
        regrouped = values[self.stop, self.column]
        regrouped[self.outside] = np.inf
        least: Array = regrouped.min(axis=1)
        return least


def best_cut(through_s: Array, band: Band, num_ranks: int) -> tuple[int, ...]:
    """Blocks per rank of a cut whose bound is the least; of equals the one nearest to an even share of what is left."""
    num_blocks, width = band.start.shape[0] - 1, band.start.shape[1]
    stages: list[int] = []
    at = 0
    for rank in range(num_ranks):
        blocks = np.arange(1, min(width, num_blocks - at) + 1)
        values = through_s[rank, at + blocks, blocks - 1]
        best = np.flatnonzero(values <= values.min() * (1 + 1e-12))
        even = (num_blocks - at) / (num_ranks - rank)
        chosen = int(blocks[best[np.argmin(np.abs(blocks[best] - even))]])
        stages.append(chosen)
        at += chosen
    return tuple(stages)


def outside_seconds(mesh: MeshCosts, width: int) -> float:
    """Least m t of a segment of width + 1 blocks: a bound on every cut with a segment the band leaves out."""
    time_s = mesh.prefix.forward + mesh.prefix.backward
    blocks = time_s[width + 2 : -1] - time_s[1 : -width - 2]
    return float(blocks.min()) * mesh.num_micro_batches


def combine(path_s: Array, band: Band, by_start: ByStart) -> Array:
    """Least maximum over all cuts through every segment: of the ranks before, its own and the ranks behind."""
    pp, size = len(path_s), band.start.shape[0]
    behind = np.full((pp + 1, size), np.inf)
    behind[pp, -1] = -np.inf
    for rank in range(pp - 1, -1, -1):
        behind[rank] = by_start.least(np.maximum(path_s[rank], behind[rank + 1][:, None]))
    before = np.full(size, np.inf)
    before[0] = -np.inf
    through_s = np.empty_like(path_s)
    for rank in range(pp):
        reached = np.maximum(path_s[rank], before[band.start])
        through_s[rank] = np.maximum(reached, behind[rank + 1][:, None])
        before = reached.min(axis=1)
    return through_s


def busy_seconds(mesh: MeshCosts, rank: int, forward_s: Array, backward_s: Array, trip_s: Array) -> Array:
    """Seconds m t + max(0, gains) of the formula in rank_program.py."""
    m, time_s = mesh.num_micro_batches, forward_s + backward_s
    if mesh.schedule is ScheduleName.GPIPE:
        busy: Array = m * time_s + trip_s
        return busy
    warm_up = min(mesh.pp - 1 - rank, m)
    skipped = min(warm_up, m - 1)
    gain_s = np.maximum(0.0, trip_s - skipped * np.minimum(forward_s, backward_s))
    if m - 1 > warm_up:
        more = (m - 1) // (warm_up + 1) - 1
        round_s = trip_s - warm_up * time_s
        gain_s = np.maximum(gain_s, trip_s + round_s + more * np.maximum(round_s, 0.0))
    busy = m * time_s + gain_s
    return busy
