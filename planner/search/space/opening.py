"""A first look at one mesh: a sharper bound, and a greedy choice if it could still win."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cost_models.chunk import MeshCosts
from planner.search.bounding.path_pool import PathPool
from planner.search.bounds import programs_lower_bound, rank_programs, roomy_bound
from planner.search.chunk_cuts import best_declared
from planner.search.greedy import greedy_ranks
from planner.search.problem import (
    InnerSolution,
    chunks_of,
    fits_rank,
    has_partition,
    pipeline_of,
    price_one,
    step_of,
)
from planner.search.windows import takes_every_cut


@dataclass(frozen=True, slots=True)
class Opening:
    """Lower bound on every choice of a mesh (infinite: none fits), and a choice that fits, if one was looked for."""

    bound_s: float
    solution: InnerSolution | None
    is_exact: bool = False  # nothing below both the bound and the cut-off is left


def only_rank(mesh: MeshCosts) -> InnerSolution | None:
    """One rank and one chunk: the least recompute that fits, since no step falls with it; None where none does."""
    blocks = mesh.table.num_blocks
    full = np.arange(mesh.least_full, (blocks if mesh.may_recompute else 0) + 1)[:, None]
    fits = fits_rank(mesh, chunks_of(mesh, np.full_like(full, blocks), full))[0]
    if not fits.any():
        return None
    return price_one(mesh, (blocks,), (int(full[np.argmax(fits), 0]),))


def open_mesh(mesh: MeshCosts, cutoff_s: float, late: Callable[[], bool], paths: PathPool) -> Opening:
    """Look at a mesh; choices at `cutoff_s` or above do not matter. `paths` are those of meshes before it."""
    if not has_partition(mesh):
        return Opening(np.inf, None)
    if not takes_every_cut(mesh.schedule, mesh.vpp, mesh.table.num_blocks):
        bound_s, best = best_declared(mesh, cutoff_s, late, paths)
        return Opening(bound_s, best, is_exact=not late())
    if mesh.pp == 1:
        found = only_rank(mesh)
        return Opening(np.inf if found is None else found.step_s, found, is_exact=True)
    reach_s = pipeline_of(mesh, cutoff_s) if np.isfinite(cutoff_s) else None
    if reach_s is not None:
        roomy_s = step_of(mesh, roomy_bound(mesh, reach_s))
        if roomy_s >= cutoff_s:
            return Opening(roomy_s, None)
    programs, rest_s = rank_programs(mesh, reach_s)
    bound_s = programs_lower_bound(mesh, programs, rest_s)
    return Opening(bound_s, greedy_ranks(mesh, programs, paths) if bound_s < cutoff_s else None)
