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
from planner.search.band_program import Bool, ByStart, busy_seconds, combine, outside_seconds
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
    band, pp, link_s = tables.band, mesh.pp, mesh.link_s
    start = band.start
    by_start = ByStart.of(band)
    trips_s = _round_trips(tables, legal, link_s, by_start)
    tail_s = _least_tail(tables, legal)
    size = start.shape[0]
    before_s, both_s = np.full(size, np.inf), np.full(size, np.inf)
    waiting_s = np.zeros(size)
    before_s[0] = both_s[0] = 0.0
    path_s = np.full(legal.shape, np.inf)
    for rank in range(pp):
        here = legal[rank] & np.isfinite(trips_s[rank])[:, None] & np.isfinite(before_s)[start]
        forward_s, backward_s = tables.forward_s[rank], tables.backward_s[rank]
        trip_s = np.where(np.isfinite(trips_s[rank]), trips_s[rank], 0.0)[:, None]
        after_s = np.maximum(waiting_s[start], tables.exposed_s[rank])
        ways_s = np.maximum(before_s[start] + after_s, both_s[start])
        path_s[rank] = ways_s + busy_seconds(mesh, rank, forward_s, backward_s, trip_s)
        path_s[rank] += np.maximum(tables.tail_s[rank], tail_s)
        path_s[rank][~here] = np.inf
        behind = link_s[rank]
        before_s = np.where(here, before_s[start] + forward_s, np.inf).min(axis=1) + behind
        both_s = np.where(here, both_s[start] + forward_s + backward_s, np.inf).min(axis=1) + 2.0 * behind
        waiting_s = np.where(here, after_s + backward_s, np.inf).min(axis=1) + behind
    return combine(path_s, band, by_start)


def _round_trips(tables: RankTables, legal: Bool, link_s: Array, by_start: ByStart) -> list[Array]:
    """R by the block where the ranks behind begin, for every rank: p arrays (L + 1,)."""
    trip_s = np.full(tables.band.start.shape[0], np.inf)
    trip_s[-1] = 0.0
    trips_s = [trip_s]
    for rank in range(len(legal) - 1, 0, -1):
        time_s = tables.forward_s[rank] + tables.backward_s[rank] + trip_s[:, None]
        trip_s = by_start.least(np.where(legal[rank], time_s, np.inf)) + 2.0 * link_s[rank - 1]
        trips_s.append(trip_s)
    return trips_s[::-1]


def _least_tail(tables: RankTables, legal: Bool) -> float:
    """The least longest tail of all legal cuts."""
    start = tables.band.start
    longest_s = np.full(start.shape[0], np.inf)
    longest_s[0] = -np.inf
    for rank, of_rank in enumerate(legal):
        reached = np.where(of_rank, np.maximum(longest_s[start], tables.tail_s[rank]), np.inf)
        longest_s = reached.min(axis=1)
    return float(longest_s[-1])
