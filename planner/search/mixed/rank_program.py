"""One chunk per rank, every rank with its own device: the min-max dynamic program of rank_program.py, rank by rank.

The paths are those of planner/search/rank_program.py; durations and links may differ by rank, so what was a prefix sum
there is a least sum over cuts here. With F_j, B_j, t_j of rank j's own segment, e_j the link behind rank j:

    before_i(a)  least sum_{j<i} (F_j + e_j) over cuts of the blocks before a
    both_i(a)    least sum_{j<i} (t_j + 2 e_j), the way down and up together, at least before + after
    after_i(a)   least max_{l<=i} (sum_{l<=j<i} (B_j + e_j) + r_l)
    R_i(b)       least sum_{j>i} (t_j + 2 e_{j-1})

each over segments that are still legal: that fit, and whose own bound is below the target. Removing a segment only
raises what the others are worth, so the program is solved again until nothing more falls away (`narrowed`).
"""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array, Index
from cost_models.mixed_costs import MixedCosts
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
from planner.search.segments import Band, SegmentTable, segment_table

MOST_ROUNDS = 12
"""Times that a program is solved again on what is left of it."""


@dataclass(frozen=True, slots=True)
class RankTables:
    """Seconds of every segment of the band on every rank, arrays (p, L + 1, width)."""

    band: Band
    fits: Bool
    forward_s: Array
    backward_s: Array
    exposed_s: Array
    tail_s: Array
    full_layers: Index


@dataclass(frozen=True, slots=True)
class MixedProgram:
    """Solved program: least bound of all cuts through every (rank, segment), seconds up to barrier plus tail."""

    tables: RankTables
    through_s: Array
    bound_s: float
    outside_s: float


def rank_tables(mesh: MixedCosts, width: int, full: int | None) -> RankTables:
    """Price the band on every kind of rank; `full` fixes K, None lets each segment take the smallest that fits."""
    tables = [segment_table(part, width, full) for part in mesh.parts]
    place = [(tables[part], tables[part].table_of_rank[rank]) for rank, part in enumerate(mesh.part_of_rank)]
    return RankTables(
        tables[0].band,
        np.stack([table.fits[row] for table, row in place]),
        np.stack([table.forward_s for table, _ in place]),
        _stacked(place, "backward_s"),
        _stacked(place, "exposed_s"),
        np.stack([table.tail_s for table, _ in place]),
        np.stack([table.full_layers[row] for table, row in place]),
    )


def _stacked(place: list[tuple[SegmentTable, int]], name: str) -> Array:
    stacked: Array = np.stack([getattr(table, name)[row] for table, row in place])
    return stacked


def solve_mixed_program(mesh: MixedCosts, full: int | None, reach_s: float = 0.0) -> MixedProgram:
    """Solve over segments of up to `width` blocks, doubling it until longer ones are worse than `reach_s`."""
    num_blocks, pp = mesh.table.num_blocks, mesh.pp
    widest = num_blocks - pp + 1
    width = min(widest, -(-2 * num_blocks // pp) + 2)
    while True:
        tables = rank_tables(mesh, width, full)
        through_s = _through(mesh, tables, _first_legal(tables, pp))
        bound_s = float(through_s[0].min())
        outside_s = np.inf if width == widest else min(outside_seconds(part, width) for part in mesh.parts)
        if width == widest or max(bound_s, reach_s) <= outside_s:
            return MixedProgram(tables, through_s, min(bound_s, outside_s), outside_s)
        width = min(widest, 2 * width)


def narrowed(mesh: MixedCosts, program: MixedProgram, target_s: float) -> MixedProgram:
    """The same program on the segments below the target, solved again until none of them falls away."""
    through_s, pp = program.through_s, mesh.pp
    left = int((through_s < target_s).sum())
    for _ in range(MOST_ROUNDS):
        legal = _first_legal(program.tables, pp) & (through_s < target_s)
        through_s = _through(mesh, program.tables, legal)
        now = int((through_s < target_s).sum())
        if now in (left, 0):
            break
        left = now
    inside_s = max(program.bound_s, min(target_s, float(through_s[0].min())))
    return MixedProgram(program.tables, through_s, min(inside_s, program.outside_s), program.outside_s)


def _first_legal(tables: RankTables, pp: int) -> Bool:
    """Segments that fit; block 0 is on rank 0 only, the last block on rank p - 1 only."""
    band = tables.band
    first, last = band.start == 0, band.stop == band.start.shape[0] - 1
    ranks = np.arange(pp)[:, None, None]
    legal: Bool = tables.fits & (first == (ranks == 0)) & (last == (ranks == pp - 1))
    return legal


def _through(mesh: MixedCosts, tables: RankTables, legal: Bool) -> Array:
    """Least bound of all cuts through every (rank, segment), infinite for those that are not legal."""
    by_start, tail_s = (
        ByStart.of(tables.band),
        least_tail(np.where(legal, tables.tail_s, np.inf), tables.band),
    )
    time_s = np.where(legal, tables.forward_s + tables.backward_s, np.inf)
    trips_s = round_trips(time_s, mesh.link_s, by_start)
    finite = np.isfinite(trips_s)
    legal = legal & finite[:, :, None]
    path_s = _ways(mesh, tables, legal)
    trip_s = np.where(finite, trips_s, 0.0)[:, :, None]
    path_s += busy_seconds(mesh, tables.forward_s, tables.backward_s, trip_s)
    path_s += np.maximum(tables.tail_s, tail_s)
    path_s[~legal] = np.inf
    return combine(path_s, behind_ranks(path_s, by_start), tables.band)


def _ways(mesh: MixedCosts, tables: RankTables, legal: Bool) -> Array:
    """What comes before and after every segment, (p, L + 1, width); infinite where nothing legal comes before."""
    start = tables.band.start
    before_s, both_s = (np.full(start.shape[0], np.inf) for _ in range(2))
    waiting_s = np.zeros(start.shape[0])
    before_s[0] = both_s[0] = 0.0
    forward_s = np.where(legal, tables.forward_s, np.inf)
    backward_s = np.where(legal, tables.backward_s, np.inf)
    ways_s = np.empty(legal.shape)
    for rank, behind in enumerate(mesh.link_s.tolist()):
        down_s, both = before_s[start], both_s[start]
        after_s = np.maximum(waiting_s[start], tables.exposed_s[rank])
        ways_s[rank] = np.maximum(down_s + after_s, both)
        there_s = np.isfinite(down_s)
        here_s = np.where(there_s, backward_s[rank], np.inf)
        before_s = np.minimum.reduce(down_s + forward_s[rank], axis=1) + behind
        both_s = np.minimum.reduce(both + forward_s[rank] + here_s, axis=1) + 2.0 * behind
        waiting_s = np.minimum.reduce(after_s + here_s, axis=1) + behind
    return ways_s
