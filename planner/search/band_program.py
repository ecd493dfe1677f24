"""What the min-max programs over (rank, block) share, whether all ranks are alike (rank_program.py) or not (mixed)."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cost_models.chunk import Array, Index, MeshCosts
from cost_models.schedule import ScheduleName
from planner.search.segments import Band

Bool = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ByStart:
    """Regroups bands (rows: where segments stop) by where segments start."""

    stop: Index
    """(L + 1, width) where the segment of 1, 2, … blocks from a block stops, L where it would end outside."""
    place: Index
    """The same as a place in a flat band; one behind its end where the segment would end outside."""

    @classmethod
    def of(cls, band: Band) -> "ByStart":
        """The places of a band's segments."""
        return _by_start(*band.start.shape)

    def regrouped(self, values: Array) -> Array:
        """Values (p, L + 1, width) by where segments start, infinite where they would end outside."""
        flat = values.reshape(len(values), -1)
        padded = np.concatenate((flat, np.full((len(flat), 1), np.inf)), axis=1)
        by_start: Array = np.take(padded, self.place, axis=1)
        return by_start


@lru_cache(maxsize=256)
def _by_start(size: int, width: int) -> ByStart:
    start, column = np.meshgrid(np.arange(size), np.arange(width), indexing="ij")
    stop = start + column + 1
    place = np.where(stop < size, stop * width + column, size * width)
    return ByStart(np.minimum(stop, size - 1), place)


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


def behind_ranks(path_s: Array, by_start: ByStart) -> Array:
    """Least maximum over all cuts of the blocks from each one on by the ranks from each one on, (p + 1, L + 1).

    That of all blocks by all ranks, at [0, 0], is the least over all cuts.
    """
    pp, size = len(path_s), path_s.shape[1]
    behind = np.full((pp + 1, size), np.inf)
    behind[pp, -1] = -np.inf
    starting = by_start.regrouped(path_s)
    for rank in range(pp - 1, -1, -1):
        reached = np.maximum(starting[rank], behind[rank + 1][by_start.stop])
        np.minimum.reduce(reached, axis=1, out=behind[rank])
    return behind


def combine(path_s: Array, behind: Array, band: Band) -> Array:
    """Least maximum over all cuts through every segment: of the ranks before, its own and the ranks behind."""
    before = np.full(path_s.shape[1], np.inf)
    before[0] = -np.inf
    through_s = np.empty_like(path_s)
    for rank in range(len(path_s)):
        reached = np.maximum(path_s[rank], before[band.start], out=through_s[rank])
        before = np.minimum.reduce(reached, axis=1)
    return np.maximum(through_s, behind[1:, :, None], out=through_s)


def round_trips(time_s: Array, hop_s: Array, by_start: ByStart) -> Array:
    """R by the block where the ranks behind begin, for every rank: (p, L + 1).

    `time_s` (p, L + 1, width) is t of legal segments, infinite for the others; `hop_s` (p,) the link behind each rank.
    """
    starting = by_start.regrouped(time_s)
    trips_s = np.full(time_s.shape[:2], np.inf)
    trips_s[-1, -1] = 0.0
    for rank in range(len(time_s) - 1, 0, -1):
        reached = starting[rank] + trips_s[rank][by_start.stop]
        np.minimum.reduce(reached, axis=1, out=trips_s[rank - 1])
        trips_s[rank - 1] += 2.0 * hop_s[rank - 1]
    return trips_s


def least_tail(tail_s: Array, band: Band) -> float:
    """The least longest tail of all cuts; `tail_s` (p, L + 1, width) is infinite for segments that are not legal."""
    longest_s = np.full(tail_s.shape[1], np.inf)
    longest_s[0] = -np.inf
    for of_rank in tail_s:
        longest_s = np.minimum.reduce(np.maximum(of_rank, longest_s[band.start]), axis=1)
    return float(longest_s[-1])


def busy_seconds(mesh: MeshCosts, forward_s: Array, backward_s: Array, trip_s: Array) -> Array:
    """Seconds m t + max(0, gains) of the formula in rank_program.py, for every rank, (p, L + 1, width)."""
    m, time_s = mesh.num_micro_batches, forward_s + backward_s
    if mesh.schedule is ScheduleName.GPIPE:
        busy: Array = m * time_s + trip_s
        return busy
    warm_up = np.minimum(mesh.pp - 1 - np.arange(mesh.pp), m)[:, None, None]
    gain_s = trip_s - np.minimum(warm_up, m - 1) * np.minimum(forward_s, backward_s)
    more = (m - 1) // (warm_up + 1) - 1
    round_s = trip_s - warm_up * time_s
    again_s = trip_s + round_s + more * np.maximum(round_s, 0.0)
    gain_s = np.where(m - 1 > warm_up, np.maximum(gain_s, again_s), gain_s)
    busy = m * time_s + np.maximum(gain_s, 0.0)
    return busy
