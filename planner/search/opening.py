"""A first look at one mesh: a sharper bound, and a greedy choice if it could still win."""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import MeshCosts
from planner.search.bounds import chunks_lower_bound, programs_lower_bound, rank_programs
from planner.search.greedy import greedy, greedy_ranks
from planner.search.problem import InnerSolution, has_partition, pipeline_of


@dataclass(frozen=True, slots=True)
class Opening:
    """Lower bound on every choice of a mesh (infinite: none fits), and a choice that fits, if one was looked for."""

    bound_s: float
    solution: InnerSolution | None


def open_mesh(mesh: MeshCosts, cutoff_s: float) -> Opening:
    """Look at a mesh; choices at `cutoff_s` or above do not matter."""
    if not has_partition(mesh):
        return Opening(np.inf, None)
    if mesh.vpp > 1 or mesh.uniform_chunks:
        bound_s = chunks_lower_bound(mesh)
        return Opening(bound_s, greedy(mesh) if bound_s < cutoff_s else None)
    reach_s = pipeline_of(mesh, cutoff_s) if np.isfinite(cutoff_s) else None
    programs, rest_s = rank_programs(mesh, reach_s)
    bound_s = programs_lower_bound(mesh, programs, rest_s)
    return Opening(bound_s, greedy_ranks(mesh, programs) if bound_s < cutoff_s else None)
