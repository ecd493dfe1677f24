"""Several chunks per rank: the best of the declared cuts (windows.py) of a mesh under every K.

Few of the cuts are simulated. The whole list of rank i takes m t_i, the first chunks' forwards of the i ranks before it
come before its first operation, and their backwards, where a backward is one operation, after its last; then its
reduction, or that of rank 0:

    T >= max_i (sum_{j<i} F[j, 0] + i e + m t_i + max(r_i, sum_{j<i} B[j, 0] + i e + r_0)) + max_i o_i
    T >= max_i (sum_{j<i} F[j, 0] + i e + m t_i + r_i) + max_i o_i                             split backward

Chunk 0 of rank j is virtual stage j in every such schedule. Cuts are simulated in rising order of this bound, until it
reaches the best of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array, ChunkCosts, Index, MeshCosts, exposed_sync_s, step_tail_s
from cost_models.step import sync_window_s
from planner.search.bounding.path_pool import PathPool
from planner.search.problem import (
    InnerSolution,
    chunks_of,
    fits_rank,
    num_virtual_stages,
    of_choices,
    price_many,
    steps_of,
)
from planner.search.windows import declared_cuts

ALONE = 24
"""Cuts that are simulated one by one, each for what its critical path says of the others, before the rest together."""


def best_declared(
    mesh: MeshCosts,
    cutoff_s: float,
    late: Callable[[], bool] = lambda: False,
    pool: PathPool | None = None,
) -> tuple[float, InnerSolution | None]:
    """Lower bound on the declared cuts of a mesh under every K, and the best of them if it is below `cutoff_s`.

    The bound is the best step where one was found, else the least of what was not simulated; infinite if none fits.
    Once it is late, larger K are only bounded: no cut gets faster with K.
    """
    pool = PathPool() if pool is None else pool
    cuts = declared_cuts(mesh.table.num_blocks, num_virtual_stages(mesh))
    best, bound_s = None, np.inf
    most = int(cuts.max(initial=0)) if mesh.may_recompute else 0
    for number in range(mesh.least_full, most + 1):
        chunks = chunks_of(mesh, cuts, np.minimum(number, cuts))
        least_s = steps_of(mesh, np.maximum(path_bounds(mesh, chunks), pool.bounds(mesh, chunks)))
        reach_s = min(cutoff_s, np.inf if best is None else best.step_s)
        if least_s.min(initial=np.inf) >= reach_s or (number > mesh.least_full and late()):
            return min(bound_s, float(least_s.min(initial=np.inf))), best
        near = least_s < reach_s  # the others only get slower with K
        bound_s = min(bound_s, float(least_s[~near].min(initial=np.inf)))
        cuts, chunks = cuts[near], of_choices(chunks, near)
        fits = np.asarray(fits_rank(mesh, chunks).all(axis=0))
        tried = _Tried(mesh, cuts[fits], of_choices(chunks, fits), number)
        left_s, found = tried.best(least_s[near][fits], reach_s, pool)
        bound_s = min(bound_s, left_s)
        best = best if found is None else found
        if fits.all():
            break  # a larger K is slower for every cut
    return bound_s, best


def path_bounds(mesh: MeshCosts, chunks: ChunkCosts) -> Array:
    """The module's bound on pipeline and tail of n choices, (n,); chunk costs of shape (p, v, n)."""
    ranks = np.arange(mesh.pp)[:, None] * (mesh.link_s is None)
    busy_s = mesh.num_micro_batches * (chunks.forward_s + chunks.backward_s).sum(1)
    down_s = np.cumsum(chunks.forward_s[:, 0], axis=0) - chunks.forward_s[:, 0] + ranks * mesh.rules.send_s
    exposed_s = exposed_sync_s(mesh.rules, chunks.sync_s.sum(1), sync_window_s(mesh, chunks))
    after_s = exposed_s
    if not mesh.schedule.splits_backward:
        up_s = np.cumsum(chunks.backward_s[:, 0], axis=0) - chunks.backward_s[:, 0]
        after_s = np.maximum(exposed_s, up_s + ranks * mesh.rules.send_s + exposed_s[0])
    tail_s = step_tail_s(mesh.rules, chunks.gather_s.sum(1), chunks.optimizer_s.sum(1)).max(0)
    bound: Array = ((down_s + busy_s + after_s).max(0) + tail_s) * (1.0 - 1e-12)
    return bound


@dataclass(frozen=True, slots=True)
class _Tried:
    """Cuts that fit under one K, (n, N), and their costs."""

    mesh: MeshCosts
    cuts: Index
    chunks: ChunkCosts
    number: int

    def best(self, least_s: Array, reach_s: float, pool: PathPool) -> tuple[float, InnerSolution | None]:
        """Least bound of the cuts that were not simulated or step of the best, and the best below `reach_s`."""
        best: InnerSolution | None = None
        bound_s = np.inf
        for _ in range(ALONE):
            if least_s.min(initial=np.inf) >= reach_s:
                return min(bound_s, float(least_s.min(initial=np.inf))), best
            one = int(np.argmin(least_s))
            pool.learn(self.mesh, self.chunks, one)
            least_s = np.maximum(
                least_s, steps_of(self.mesh, pool.bounds(self.mesh, self.chunks, only_last=True))
            )
            if least_s[one] < reach_s:
                found = self._priced(np.array([one]))
                best, reach_s = (found, found.step_s) if found.step_s < reach_s else (best, reach_s)
                bound_s, least_s[one] = min(bound_s, found.step_s), np.inf
        rest = np.flatnonzero(least_s < reach_s)
        if rest.size:
            found = self._priced(rest)
            best = found if found.step_s < reach_s else best
            bound_s, least_s[rest] = min(bound_s, found.step_s), np.inf
        return min(bound_s, float(least_s.min(initial=np.inf))), best

    def _priced(self, some: Index) -> InnerSolution:
        """The best of some cuts, simulated."""
        full_layers = np.minimum(self.number, self.cuts[some])
        steps = price_many(self.mesh, self.cuts[some], full_layers).step_s
        first = int(np.argmin(steps))
        cut = tuple(self.cuts[some[first]].tolist())
        return InnerSolution(cut, tuple(full_layers[first].tolist()), float(steps[first]))
