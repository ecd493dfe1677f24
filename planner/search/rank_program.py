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

from cost_models.chunk import Array, MeshCosts
from planner.search.band_program import Bool, ByStart, busy_seconds, combine, outside_seconds
from planner.search.segments import SegmentTable, segment_table


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
        outside_s = np.inf if width == widest else outside_seconds(mesh, width)
        if width == widest or max(bound_s, reach_s) <= outside_s:
            return RankProgram(table, through_s, min(bound_s, outside_s), outside_s)
        width = min(widest, 2 * width)


def _through(mesh: MeshCosts, table: SegmentTable) -> Array:
    band, pp = table.band, mesh.pp
    legal = [_legal(table, rank, pp) for rank in range(pp)]
    by_start = ByStart.of(band)
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
        path_s[rank] += busy_seconds(mesh, rank, table.forward_s, table.backward_s[cls], trip_s)
        path_s[rank] += np.maximum(table.tail_s, tail_s)
        path_s[rank][~legal[rank]] = np.inf
        hop_s = np.where(legal[rank], after_s + table.backward_s[cls], np.inf)
        waiting_s = hop_s.min(axis=1) + mesh.rules.send_s
    return combine(path_s, band, by_start)


def _round_trips(mesh: MeshCosts, table: SegmentTable, legal: list[Bool], by_start: ByStart) -> list[Array]:
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


def _least_tail(table: SegmentTable, legal: list[Bool]) -> float:
    """tau: the least longest tail of all cuts, memory apart."""
    longest_s = np.full(table.band.start.shape[0], np.inf)
    longest_s[0] = -np.inf
    for of_rank in legal:
        reached = np.where(of_rank, np.maximum(longest_s[table.band.start], table.tail_s), np.inf)
        longest_s = reached.min(axis=1)
    return float(longest_s[-1])


def _legal(table: SegmentTable, rank: int, pp: int) -> Bool:
    """Segments that fit; block 0 is on rank 0 only, the last block on rank p - 1 only."""
    band = table.band
    num_blocks = band.start.shape[0] - 1
    first, last = band.start == 0, band.stop == num_blocks
    fits = table.fits[table.table_of_rank[rank]]
    legal: Bool = fits & (first == (rank == 0)) & (last == (rank == pp - 1))
    return legal
