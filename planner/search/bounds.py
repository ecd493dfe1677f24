"""Lower bounds on the step of one mesh, in milliseconds and without a solver."""
import numpy as np
from cost_models.chunk import MeshCosts
from planner.search.problem import num_virtual_stages, step_of
from planner.search.rank_program import solve_rank_program

def inner_lower_bound(mesh: MeshCosts) -> float:
    if num_virtual_stages(mesh) > mesh.table.num_blocks:
        return np.inf
    if mesh.vpp > 1: return 0.0
    if not mesh.uniform_full:
        return float(step_of(mesh, np.float64(solve_rank_program(mesh, None).bound_s)))
    return min(float(step_of(mesh, np.float64(solve_rank_program(mesh, k).bound_s))) for k in range(mesh.table.num_blocks+1))
