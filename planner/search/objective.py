"""What the solver is asked: not for the least step, but whether any step reaches a target.

With U the best step known (an own solution or another mesh's), the question is whether a choice has

    step <= (1 - gap) U.

Each answer "no" of a relaxation proves lower bound = (1 - gap) U at once; each answer "yes" is simulated, which either
improves U or yields paths that the relaxation did not know. Deciding is faster than minimising, because the solver
need not prove how good a relaxed answer is that the simulator will refute anyway.
"""

from dataclasses import dataclass, field

import numpy as np

from cost_models.chunk import MeshCosts
from planner.search.bounding.path_pool import PathPool
from planner.search.problem import InnerSolution, pipeline_of, step_of


@dataclass(slots=True)
class Goal:
    """The best known step, and the target that follows from it; infinite before any is known.

    `best` is a choice of this mesh, `paths` what other meshes have taught.
    """

    mesh: MeshCosts
    gap: float
    incumbent_s: float
    best: InnerSolution | None = None
    paths: PathPool = field(default_factory=PathPool)

    @property
    def known_s(self) -> float:
        """The best step known."""
        return min(self.incumbent_s, np.inf if self.best is None else self.best.step_s)

    @property
    def target_s(self) -> float:
        """The step that a solution must reach to matter."""
        return (1.0 - self.gap) * self.known_s

    @property
    def pipeline_target_s(self) -> float:
        """The same for the pipeline and the longest tail alone."""
        return pipeline_of(self.mesh, self.target_s)

    def step_of_bound(self, pipeline_s: float) -> float:
        """Step that a bound on pipeline and tail stands for."""
        return step_of(self.mesh, pipeline_s)

    def offer(self, solution: InnerSolution | None) -> bool:
        """Keep the solution if it is the best of this mesh; says so."""
        if solution is None or (self.best is not None and solution.step_s >= self.best.step_s):
            return False
        self.best = solution
        return True
