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

from dataclasses import dataclass, field

import numpy as np

from cost_models.chunk import Array, MeshCosts
from planner.search.band_program import (
    Bool,
    ByStart,
    behind_ranks,
    busy_seconds,
    combine,
    least_tail,
    outside_seconds,
    round_trips,
)
from planner.search.segments import SegmentTable, segment_table


@dataclass(slots=True)
class RankProgram:
    """Solved program; seconds up to the barrier plus the longest tail, infinite where nothing fits.

    Segments that the band leaves out are worth at least `outside_s` each.
    """

    table: SegmentTable
    path_s: Array
    behind_s: Array
    bound_s: float
    outside_s: float
    _through_s: Array | None = field(default=None, init=False)

    @property
    def through_s(self) -> Array:
        """Of every rank and segment the least bound of all cuts that give the rank it, (p, L + 1, width)."""
        if self._through_s is None:
            self._through_s = combine(self.path_s, self.behind_s, self.table.band)
        return self._through_s

    @property
    def all_fit(self) -> bool:
        """Whether every segment of the band fits on every rank."""
        return bool((self.table.fits == self.table.band.legal).all())


def solve_rank_program(mesh: MeshCosts, full: int | None, reach_s: float = 0.0) -> RankProgram:
    """Solve over segments of up to `width` blocks, so many that longer ones are worse than `reach_s` or the bound.

    K is `full` for all ranks, or the smallest that fits on each.
    """
    num_blocks, pp = mesh.table.num_blocks, mesh.pp
    widest = num_blocks - pp + 1
    width = min(widest, -(-3 * num_blocks // (2 * pp)) + 2)
    while width < widest and outside_seconds(mesh, width) < reach_s:
        width = min(widest, 2 * width)
    while True:
        table = segment_table(mesh, width, full)
        path_s = _paths(mesh, table)
        behind_s = behind_ranks(path_s, ByStart.of(table.band))
        bound_s = float(behind_s[0, 0])
        outside_s = np.inf if width == widest else outside_seconds(mesh, width)
        if width == widest or bound_s <= outside_s or 0.0 < reach_s <= outside_s:
            return RankProgram(table, path_s, behind_s, min(bound_s, outside_s), outside_s)
        width = min(widest, 2 * width)


def _paths(mesh: MeshCosts, table: SegmentTable) -> Array:
    """The longest path through every segment on every rank, infinite for those that are not legal."""
    band, pp, send_s = table.band, mesh.pp, mesh.rules.send_s
    of_rank = list(table.table_of_rank)
    legal = _legal(table, pp)
    backward_s, exposed_s = table.backward_s[of_rank], table.exposed_s[of_rank]
    tail_s = least_tail(np.where(legal, table.tail_s, np.inf), band)
    time_s = np.where(legal, table.forward_s + backward_s, np.inf)
    trips_s = round_trips(time_s, np.full(pp, send_s), ByStart.of(band))
    finite = np.isfinite(trips_s)
    legal &= finite[:, :, None]
    after_s = _after(legal, exposed_s, backward_s, table, send_s)
    before_s = np.concatenate((mesh.prefix.forward[:1], mesh.prefix.forward[2:-1]))[band.start]
    path_s = before_s + (np.arange(pp) * send_s)[:, None, None] + after_s
    trip_s = np.where(finite, trips_s, 0.0)[:, :, None]
    path_s += busy_seconds(mesh, table.forward_s, backward_s, trip_s)
    path_s += np.maximum(table.tail_s, tail_s)
    path_s[~legal] = np.inf
    return path_s


def _after(legal: Bool, exposed_s: Array, backward_s: Array, table: SegmentTable, send_s: float) -> Array:
    """after_i of every segment, the rank's own r included, (p, L + 1, width)."""
    start = table.band.start
    hop_s = np.where(legal, backward_s, np.inf)
    after_s = np.empty_like(hop_s)
    waiting_s = np.zeros(start.shape[0])  # without the rank's own r
    for rank, exposed in enumerate(exposed_s):
        own = np.maximum(exposed, waiting_s[start], out=after_s[rank])
        waiting_s = np.minimum.reduce(own + hop_s[rank], axis=1) + send_s
    return after_s


def _legal(table: SegmentTable, pp: int) -> Bool:
    """Segments that fit, (p, L + 1, width); block 0 is on rank 0 only, the last block on rank p - 1 only."""
    band, ranks = table.band, np.arange(pp)[:, None, None]
    first, last = band.start == 0, band.stop == band.start.shape[0] - 1
    fits = table.fits[list(table.table_of_rank)]
    legal: Bool = fits & (first == (ranks == 0)) & (last == (ranks == pp - 1))
    return legal
