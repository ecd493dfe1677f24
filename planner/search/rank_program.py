"""One chunk per rank: a min-max dynamic program over (rank, block) whose value is a lower bound on the step.

Rank i holds blocks [a, b). With w = min(p - 1 - i, m) warm-up forwards (1F1B), e = send_s and t = F + B, every
path below exists in the schedule's graph for all durations, so its length is at most the step:

    T >= before_i(a) + m t + max(0, gains) + after_i + o

    before_i(a) = sum_{j<i} F_j + i e           exact: forward seconds do not depend on the recompute, so the sum is
                                                that of the rows before a
    after_i     = max_{l<=i} (sum_{l<=j<i} B_j + (i-l) e + r_l)
    R           = sum_{j>i} (t_j + 2 e)         the round trip of one micro-batch through the ranks behind
    gains:  R - w F                             micro-batch 0 goes round, instead of warm-up forwards 1..w
            R - w B                             micro-batch m-1 goes round, instead of the w backwards before its own
            2 R - w t + M max(0, R - w t)       both, and M = (m-1) // (w+1) - 1 more in between, when m - 1 > w
            R                                   GPipe: nothing runs meanwhile

(F(k) R B(k) replaces what the rank's list has between F(k) and B(k).) after_i and R depend on the other ranks' segments
and recompute; each is taken at its minimum over all ways to cut the blocks before a and after b, which memory may
rule out (then it is infinite: no assignment fits). The longest tail is at least its own min-max, tau. Then

    bound = min over cuts of max_i (path_i + max(o_i, tau)).

The program also gives, for every (rank, segment), the least bound of all cuts that use it, which removes segments
that cannot beat an incumbent.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.chunk import Array, Index, MeshCosts
from cost_models.schedule import ScheduleName
from planner.search.segments import Band, SegmentTable, segment_table


@dataclass(frozen=True, slots=True)
class RankProgram:
    """Solved program; seconds up to the barrier plus the longest tail, infinite where nothing fits.

    `through_s[i]` is the least bound of all cuts that give rank i the segment, shape (p, L + 1, width); segments
    that the band leaves out are worth at least `outside_s` each.
    """

    table: SegmentTable
    through_s: Array
    bound_s: float
    outside_s: float

    @property
    def all_fit(self) -> bool:
        """Whether every segment of the band fits on every rank."""
        return bool((self.table.fits == self.table.band.legal).all())


def solve_rank_program(mesh: MeshCosts, full: int | None, reach_s: float = 0.0) -> RankProgram:
    """Solve over segments of up to `width` blocks, doubling it until longer ones are worse than `reach_s`.

    They are always worse than the bound; K is `full` for all ranks, or the smallest that fits on each.
    """
    num_blocks, pp = mesh.table.num_blocks, mesh.pp
    widest = num_blocks - pp + 1
    width = min(widest, -(-3 * num_blocks // (2 * pp)) + 2)
    while True:
        table = segment_table(mesh, width, full)
        through_s = _through(mesh, table)
        bound_s = float(through_s[0].min())
        outside_s = np.inf if width == widest else _outside(mesh, width)
        if width == widest or max(bound_s, reach_s) <= outside_s:
            return RankProgram(table, through_s, min(bound_s, outside_s), outside_s)
        width = min(widest, 2 * width)


def best_cut(program: RankProgram, num_ranks: int) -> tuple[int, ...]:
    """Blocks per rank of a cut whose bound is the least, the even ones among equals."""
    band = program.table.band
    num_blocks, width = band.start.shape[0] - 1, band.start.shape[1]
    stages: list[int] = []
    at = 0
    for rank in range(num_ranks):
        blocks = np.arange(1, min(width, num_blocks - at) + 1)
        values = program.through_s[rank, at + blocks, blocks - 1]
        best = np.flatnonzero(values <= values.min() * (1 + 1e-12))
        even = (num_blocks - at) / (num_ranks - rank)
        chosen = int(blocks[best[np.argmin(np.abs(blocks[best] - even))]])
        stages.append(chosen)
        at += chosen
    return tuple(stages)


def _outside(mesh: MeshCosts, width: int) -> float:
    """Least m t of a segment of width + 1 blocks: a bound on every cut with a segment the band leaves out."""
    time_s = mesh.prefix.forward + mesh.prefix.backward
    blocks = time_s[width + 2 : -1] - time_s[1 : -width - 2]
    return float(blocks.min()) * mesh.num_micro_batches


def _through(mesh: MeshCosts, table: SegmentTable) -> Array:
    band, pp = table.band, mesh.pp
    legal = [_legal(table, rank, pp) for rank in range(pp)]
    by_start = _ByStart.of(band)
    trips_s = _round_trips(mesh, table, legal, by_start)
    tail_s = _least_tail(table, legal)
    path_s = np.full((pp, *band.start.shape), np.inf)
    waiting_s = np.zeros(band.start.shape[0])  # after_i without the rank's own r
    before_s = np.concatenate((mesh.prefix.forward[:1], mesh.prefix.forward[2:-1]))
    for rank in range(pp):
        cls = table.table_of_rank[rank]
        finite = np.isfinite(trips_s[rank])
        legal[rank] &= finite[:, None]
        trip_s = np.where(finite, trips_s[rank], 0.0)[:, None]
        after_s = np.maximum(waiting_s[band.start], table.exposed_s[cls])
        path_s[rank] = before_s[band.start] + rank * mesh.rules.send_s + after_s
        path_s[rank] += _rank_busy(mesh, rank, table.forward_s, table.backward_s[cls], trip_s)
        path_s[rank] += np.maximum(table.tail_s, tail_s)
        path_s[rank][~legal[rank]] = np.inf
        hop_s = np.where(legal[rank], after_s + table.backward_s[cls], np.inf)
        waiting_s = hop_s.min(axis=1) + mesh.rules.send_s
    return _combine(path_s, band, by_start)


def _combine(path_s: Array, band: Band, by_start: "_ByStart") -> Array:
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


def _rank_busy(mesh: MeshCosts, rank: int, forward_s: Array, backward_s: Array, trip_s: Array) -> Array:
    """Seconds m t + max(0, gains) of the module's formula."""
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


def _round_trips(
    mesh: MeshCosts, table: SegmentTable, legal: list[NDArray[np.bool_]], by_start: "_ByStart"
) -> list[Array]:
    """R by the block where the ranks behind begin, for every rank: shape (p, L + 1)."""
    size = table.band.start.shape[0]
    trip_s = np.full(size, np.inf)
    trip_s[-1] = 0.0
    trips_s = [trip_s]
    for rank in range(mesh.pp - 1, 0, -1):
        time_s = table.forward_s + table.backward_s[table.table_of_rank[rank]] + trip_s[:, None]
        trip_s = by_start.least(np.where(legal[rank], time_s, np.inf)) + 2 * mesh.rules.send_s
        trips_s.append(trip_s)
    return trips_s[::-1]


def _least_tail(table: SegmentTable, legal: list[NDArray[np.bool_]]) -> float:
    """tau: the least longest tail of all cuts, memory apart."""
    longest_s = np.full(table.band.start.shape[0], np.inf)
    longest_s[0] = -np.inf
    for of_rank in legal:
        reached = np.where(of_rank, np.maximum(longest_s[table.band.start], table.tail_s), np.inf)
        longest_s = reached.min(axis=1)
    return float(longest_s[-1])


def _legal(table: SegmentTable, rank: int, pp: int) -> NDArray[np.bool_]:
    """Segments that fit; block 0 is on rank 0 only, the last block on rank p - 1 only."""
    band = table.band
    num_blocks = band.start.shape[0] - 1
    first, last = band.start == 0, band.stop == num_blocks
    fits = table.fits[table.table_of_rank[rank]]
    legal: NDArray[np.bool_] = fits & (first == (rank == 0)) & (last == (rank == pp - 1))
    return legal


@dataclass(frozen=True, slots=True)
class _ByStart:
    """Regroups a band (rows: where segments stop) by where segments start."""

    stop: Index
    column: Index
    outside: NDArray[np.bool_]

    @classmethod
    def of(cls, band: Band) -> "_ByStart":
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
