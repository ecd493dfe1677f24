"""What a search of the space knows and was told: limits, the rule of recompute, what was found and put away."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from cost_models.chunk import MeshCosts
from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.specs.strategy import Strategy
from planner.search.mesh_table import all_full, without_full
from planner.search.problem import InnerSolution, price_many
from planner.search.space.walk import Walked


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """When to stop, how close to come, the seed of the solver, and how many alternatives are wanted.

    Plans slower than `within_s` are of no use: it counts as a best step that is known before the search. `stop` is
    asked often; once it says yes the search ends as if time were up.
    """

    gap: float
    max_seconds: float
    seed: int
    wanted: int = 0
    within_s: float = np.inf
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class RecomputeRule:
    """What the inner problem may do about full recompute."""

    free: bool  # the number of fully recomputed blocks is chosen
    everywhere: bool  # every block is recomputed in full
    needed: bool  # where no scope is recomputed, one block at least must be
    takes: Callable[[Recompute], bool]  # what pins and bans leave
    scopes: tuple[str, ...]  # every scope of the model

    def apply(self, mesh: MeshCosts, scopes: tuple[str, ...]) -> MeshCosts:
        """The mesh as the inner problem should see it; full and selective do not mix."""
        if self.everywhere:
            return all_full(mesh)
        if not self.free or scopes:
            return without_full(mesh)
        alone = mesh.uniform_full or mesh.pp * mesh.vpp == 1
        return replace(mesh, least_full=1) if self.needed and alone else mesh

    def chosen(
        self, mesh: MeshCosts, scopes: tuple[str, ...], solution: InnerSolution
    ) -> tuple[Recompute, float] | None:
        """Recompute and step of a solution.

        Where none is banned and nothing is recomputed, one block is, in full, on the virtual stage where that costs
        least; None where it fits on none. The mesh's bound stays a bound, since no step falls with it.
        """
        full: int | tuple[int, ...] = solution.full_layers
        if self.everywhere:
            full = ALL_LAYERS
        elif mesh.uniform_full or not any(solution.full_layers):
            full = max(solution.full_layers)
        recompute = Recompute(scopes, full)
        if self.takes(recompute):
            return recompute, solution.step_s
        count = len(solution.stages)
        each = np.eye(count, dtype=np.int64)[np.asarray(solution.stages) > 0]
        prices = price_many(mesh, np.repeat([solution.stages], len(each), axis=0), each)
        steps = np.where(prices.excess_bytes <= 0.0, prices.step_s, np.inf)
        best = int(np.argmin(steps))
        one = Recompute(scopes, tuple(each[best].tolist()))
        return (one, float(steps[best])) if np.isfinite(steps[best]) and self.takes(one) else None

    def free_with(self, scopes: tuple[str, ...]) -> bool:
        """Whether the number of fully recomputed blocks of meshes with this base is chosen."""
        return self.free and not scopes and not self.everywhere


@dataclass(frozen=True, slots=True)
class Found:
    """A strategy that fits, with its step as the simulator gives it."""

    strategy: Strategy
    step_s: float


def mesh_axes(strategy: Strategy) -> tuple[object, ...]:
    """What tells plans apart: runners-up differ from the best plan, and from each other, in one of these."""
    s = strategy
    return (s.stage_groups, s.tp, s.cp, s.pp, s.vpp, s.ep, s.etp, s.dp, s.dp_replicate, s.zero, s.mbs)


@dataclass(slots=True)
class SearchState:
    """What is known while the search runs."""

    found: list[Found] = field(default_factory=list)
    best: Found | None = None
    lower_bound_s: float = np.inf  # of everything put away so far
    out_of_memory: int = 0
    bounded: int = 0
    solved: int = 0
    open: int = 0
    within_s: float = np.inf

    @property
    def best_s(self) -> float:
        """Step of the best strategy; while there is none, the one that it must be below."""
        return self.best.step_s if self.best else self.within_s

    def distinct(self) -> list[Found]:
        """What was found, the fastest of each mesh, rising."""
        fastest: dict[tuple[object, ...], Found] = {}
        for found in sorted(self.found, key=lambda one: one.step_s):
            fastest.setdefault(mesh_axes(found.strategy), found)
        return list(fastest.values())

    def offer(self, candidate: Found) -> None:
        """Keep a strategy, as the best one if it is."""
        self.found.append(candidate)
        if candidate.step_s < self.best_s:
            self.best = candidate

    def put_away(self, bound_s: float) -> None:
        """Remember the bound of a mesh that is not looked at again."""
        self.lower_bound_s = min(self.lower_bound_s, bound_s)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A mesh whose inner problem is not settled, with its sharpened bound and what was found inside."""

    bound_s: float
    walked: Walked
    known: InnerSolution | None = None
