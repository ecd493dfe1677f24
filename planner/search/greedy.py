"""A good choice without a solver: a balanced cut, the least recompute that fits, and moves of single blocks.

start     the cut of the rank program (v = 1), or an even one corrected for heavy edges (v > 1)
recompute K fixed, or the smallest that fits (exact for v = 1, see segments; step by step for v > 1)
improve   take the best of all moves of one block from one virtual stage to another, until none helps
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Index, MeshCosts
from cost_models.schedule import in_flight
from cost_models.step import virtual_stage
from planner.search.band_program import best_cut
from planner.search.baselines import even_stages
from planner.search.bounding.path_pool import PathPool
from planner.search.bounds import Programs, rank_programs
from planner.search.problem import (
    InnerSolution,
    chunks_of,
    fits_rank,
    has_partition,
    most_full,
    price_many,
    step_of,
    steps_of,
)
from planner.search.segments import SegmentTable, stage_recompute

FEW_CUTS = 8
"""So many cuts are simulated as quickly as a path is found that could spare them."""

FullRule = Callable[[Index], Index]
"""Fully recomputed blocks, shape (n, N), for n cuts (n, N)."""


def full_rule(mesh: MeshCosts, full: int | None, table: SegmentTable | None) -> FullRule:
    """The rule of one subproblem: K fixed, looked up in the segment table (v = 1), or found step by step."""
    if full is not None:
        return lambda stages: np.minimum(full, stages)
    if table is not None:
        return lambda stages: stage_recompute(table, stages)
    return lambda stages: grow_recompute(mesh, stages)


def grow_recompute(mesh: MeshCosts, stages: Index) -> Index:
    """Recompute one more block at a time on every rank that does not fit, where it frees most bytes per second."""
    flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    most = np.array([np.max(flight.vectors[rank], axis=0) for rank in range(mesh.pp)])  # (p, v)
    where = virtual_stage(mesh)
    full_layers = np.zeros_like(stages)
    for _ in range(int(stages.sum(axis=1).max())):
        now = chunks_of(mesh, stages, full_layers)
        short = ~fits_rank(mesh, now)  # (p, n)
        can = (full_layers < stages).T[where]  # (p, v, n)
        if not (short[:, None] & can).any():
            break
        more = chunks_of(mesh, stages, np.minimum(full_layers + 1, stages))
        freed = most[:, :, None] * (now.saved_bytes - more.saved_bytes)
        worth = np.where(can, freed / (more.backward_s - now.backward_s + 1e-12), -np.inf)
        chosen = np.argmax(worth, axis=1)  # (p, n)
        rank, column = np.nonzero(short & can.any(axis=1))
        full_layers[column, where[rank, chosen[rank, column]]] += 1
    return full_layers


def improve(
    mesh: MeshCosts,
    starts: Index,
    rule: FullRule,
    paths: PathPool,
    max_moves: int = 200,
    *,
    lone_ends: bool = False,
) -> InnerSolution | None:
    """Best cut reached from `starts` (n, N) by moves of one block; None if no move leads to one that fits.

    A move must lower the step, or, as long as the cut does not fit, the bytes of its fullest rank. With `lone_ends` the
    first and the last virtual stage may be left without blocks. `paths` spare moves, and are added to.
    """
    best = _best_of(mesh, starts, rule)
    for _ in range(0 if mesh.uniform_chunks else max_moves):
        moves = _neighbours(np.asarray(best.solution.stages), lone_ends=lone_ends)
        cuts = _shorter(mesh, best, moves, rule, paths)
        moved = _best_of(mesh, cuts, rule)
        if not moved.is_better(best):
            break
        best = moved
    return best.solution if best.excess_bytes <= 0.0 else None


def _shorter(mesh: MeshCosts, best: "_Reached", cuts: Index, rule: FullRule, paths: PathPool) -> Index:
    """Cuts that the longest paths so far do not show to be at least as slow as the best one, if that fits."""
    if best.excess_bytes > 0.0 or len(cuts) < FEW_CUTS:
        return cuts
    stages, full = (np.asarray([of]) for of in (best.solution.stages, best.solution.full_layers))
    paths.learn_longest(mesh, chunks_of(mesh, stages, full), best.solution.step_s)
    least_s = steps_of(mesh, paths.bounds(mesh, chunks_of(mesh, cuts, rule(cuts))))
    kept: Index = cuts[least_s < best.solution.step_s]
    return kept


@dataclass(frozen=True, slots=True)
class _Reached:
    solution: InnerSolution
    excess_bytes: float

    def is_better(self, other: "_Reached") -> bool:
        mine, theirs = max(self.excess_bytes, 0.0), max(other.excess_bytes, 0.0)
        return (mine, self.solution.step_s) < (theirs, other.solution.step_s)


def _best_of(mesh: MeshCosts, stages: Index, rule: FullRule) -> _Reached:
    if len(stages) == 0:
        return _Reached(InnerSolution((), (), np.inf), np.inf)
    full_layers = rule(stages)
    prices = price_many(mesh, stages, full_layers)
    best = int(np.lexsort((prices.step_s, np.maximum(prices.excess_bytes, 0.0)))[0])
    cut, full = tuple(stages[best].tolist()), tuple(full_layers[best].tolist())
    return _Reached(InnerSolution(cut, full, float(prices.step_s[best])), float(prices.excess_bytes[best]))


def _neighbours(stages: Index, *, lone_ends: bool) -> Index:
    """All cuts with one block moved from one virtual stage to another, shifting the stages between."""
    count = len(stages)
    giver, taker = np.nonzero(~np.eye(count, dtype=bool))
    cuts = np.repeat(stages[None], len(giver), axis=0)
    rows = np.arange(len(giver))
    cuts[rows, giver] -= 1
    cuts[rows, taker] += 1
    least = np.ones(count, dtype=np.int64)
    if lone_ends and count > 1:
        least[[0, -1]] = 0
    kept: Index = cuts[(cuts >= least).all(axis=1)]
    return kept


def greedy(mesh: MeshCosts, paths: PathPool) -> InnerSolution | None:
    """A good choice in milliseconds, None when none is found that fits."""
    if not has_partition(mesh):
        return None
    if mesh.vpp == 1 and not mesh.uniform_chunks:
        return greedy_ranks(mesh, rank_programs(mesh, None)[0], paths)
    cuts = _starts(mesh)
    if not mesh.uniform_full:
        return _best_reached(mesh, cuts, full_rule(mesh, None, None), paths)
    # The fewest recomputed blocks with which one of them fits; an uneven cut may do with one less.
    fulls = range(mesh.least_full, most_full(mesh) + 1)
    fewest = next((full for full in fulls if _any_fits(mesh, cuts, full)), most_full(mesh))
    tried = {fewest, max(fewest - 1, mesh.least_full)}
    found = [_best_reached(mesh, cuts, full_rule(mesh, full, None), paths) for full in tried]
    return min((one for one in found if one is not None), key=lambda one: one.step_s, default=None)


def _starts(mesh: MeshCosts) -> Index:
    """Even cuts with the longer stages at every place, and with up to two blocks less on the last, (n, N)."""
    stages = even_stages(mesh)
    assert stages is not None  # has_partition
    count, num_blocks = len(stages), mesh.table.num_blocks
    cuts = {stages}
    for fewer in range(0 if mesh.uniform_chunks else _LIGHTER_LAST + 1):
        base, extra = divmod(num_blocks + fewer, count)
        for first in range(count):
            longer = {(first + more) % count for more in range(extra)}
            cut = [base + (stage in longer) for stage in range(count)]
            cut[-1] -= fewer
            if cut[-1] >= 1:
                cuts.add(tuple(cut))
    return np.array(sorted(cuts))


# Blocks by which the last virtual stage is made lighter for the head at most.
_LIGHTER_LAST = 2
# Starts from which the local search is run.
_MOST_STARTS = 3


def _any_fits(mesh: MeshCosts, cuts: Index, full: int) -> bool:
    return bool(fits_rank(mesh, chunks_of(mesh, cuts, np.minimum(full, cuts))).all(axis=0).any())


def _best_reached(mesh: MeshCosts, cuts: Index, rule: FullRule, paths: PathPool) -> InnerSolution | None:
    """The best end of the local searches from the best starts."""
    prices = price_many(mesh, cuts, rule(cuts))
    order = np.lexsort((prices.step_s, np.maximum(prices.excess_bytes, 0.0)))[:_MOST_STARTS]
    found = [improve(mesh, cuts[[start]], rule, paths) for start in order]
    return min((one for one in found if one is not None), key=lambda one: one.step_s, default=None)


def greedy_ranks(mesh: MeshCosts, programs: Programs, paths: PathPool) -> InnerSolution | None:
    """Improve the cuts of the rank programs with the least bounds (a few K, if the engine takes one)."""
    fitting = [item for item in programs if np.isfinite(item[1].bound_s)]
    best: InnerSolution | None = None
    for full, program in sorted(fitting, key=lambda item: item[1].bound_s):
        if best is not None and step_of(mesh, program.bound_s) >= best.step_s:
            break
        cut = np.array([best_cut(program.through_s, program.table.band, mesh.pp)])
        found = improve(mesh, cut, full_rule(mesh, full, program.table), paths)
        if found is not None and (best is None or found.step_s < best.step_s):
            best = found
    return best
