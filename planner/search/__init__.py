"""The search, from one mesh to all of them.

Here stands the exact search inside one mesh: stage boundaries and full recompute, with a proof. `bounding` holds lower
bounds of many meshes at once, `space` the search over the whole space, `mixed` what several device groups change.
Importing this package loads no solver; `solve_inner` does so when bounds and the greedy solution leave something open.
"""

from planner.search.baselines import even_stages, solve_exhaustively
from planner.search.bounds import inner_lower_bound
from planner.search.greedy import greedy
from planner.search.problem import InnerResult, InnerSolution, InnerStatus
from planner.search.solve import solve_inner

__all__ = [
    "InnerResult",
    "InnerSolution",
    "InnerStatus",
    "even_stages",
    "greedy",
    "inner_lower_bound",
    "solve_exhaustively",
    "solve_inner",
]
