"""One mesh after the other: looked at, settled, improved; what comes of each is kept in the state of the search."""

import time
from collections.abc import Callable, Iterable

import numpy as np

from cost_models.chunk import Array, MeshCosts
from cost_models.mesh import Int, batch_of, mesh_key
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.pricing import Pricer
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy
from planner.answers import Progress
from planner.candidates import strategy_of
from planner.search.bounding.path_pool import PathPool
from planner.search.objective import Goal
from planner.search.problem import InnerSolution, InnerStatus
from planner.search.solve import solve_goal
from planner.search.space.effort import Effort
from planner.search.space.opening import Opening, open_mesh
from planner.search.space.polish import Polish
from planner.search.space.search_state import (
    Found,
    RecomputeRule,
    SearchLimits,
    SearchState,
    Unsettled,
    mesh_axes,
)
from planner.search.space.walk import Walked

MORE_PLANS_TRIED = 12
MORE_PLANS_WITHIN = 1.5
"""How many meshes behind the best are opened for alternatives, and how much slower these may be."""

DEGREES = ("tp", "cp", "pp", "ep", "dp")
"""Axes in which such alternatives differ from all plans found before."""


class MeshSearch:
    """What is done with single meshes, and with time, bounds and progress."""

    def __init__(
        self,
        pricer: Pricer,
        recompute: RecomputeRule,
        limits: SearchLimits,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._pricer, self._recompute, self._limits = pricer, recompute, limits
        self._progress = on_progress
        self._deadline = time.monotonic() + limits.max_seconds
        self._total, self._floor_s = 0, 0.0
        self._waiting: list[Unsettled] = []
        self._paths = PathPool()
        self._openings: dict[Strategy, Opening] = {}
        self.state = SearchState(within_s=limits.within_s)

    def _polish(self) -> None:
        """Improve the best plans by small steps, beyond the declared cuts and scopes where that helps."""
        rule = self._recompute
        polish = Polish(self._costs_of, rule.takes, rule.scopes, self._paths)
        polish.improve_best(self.state, self._limits.wanted, self._late)

    def _costs_of(self, strategy: Strategy) -> MeshCosts:
        """The costs of a strategy's mesh as the search sees them."""
        priced = self._pricer.price(batch_of([strategy], mesh_key(strategy)))
        costs = mesh_costs(self._pricer, priced, batch_rules(self._pricer, priced), 0)
        return self._recompute.apply(costs, strategy.recompute.scopes)

    def _cutoff(self) -> float:
        """Bounds from here on cannot improve on the best by more than the gap."""
        return self.state.best_s * (1.0 - self._limits.gap)

    def _late(self) -> bool:
        return time.monotonic() > self._deadline or self._limits.stop()

    def _more_plans(self, behind: Iterable[Walked]) -> None:
        """Open a few meshes behind the best for alternatives whose degrees differ; bounds stay as they are.

        Counted, not timed, so that the answer does not depend on the machine.
        """
        seen = {_degrees(found.strategy) for found in self.state.found}
        worth_s, tries = self.state.best_s * MORE_PLANS_WITHIN, MORE_PLANS_TRIED
        for walked in behind:
            if len(seen) > self._limits.wanted or tries == 0 or self._late():
                return
            degrees = tuple(walked.batch.row(walked.row)[axis] for axis in DEGREES)
            if degrees in seen or walked.bound_s >= worth_s:
                continue
            tries -= 1
            solution = self._opened(walked, worth_s).solution
            if solution is not None:
                self._offer(walked, solution)
                seen.add(degrees)

    def _is_known(self, walked: Walked) -> bool:
        """Whether a plan of the same mesh was found."""
        full, stages = Recompute(walked.batch.key.scopes), ()
        axes = mesh_axes(strategy_of(walked.batch, walked.row, stages, full))
        return any(mesh_axes(found.strategy) == axes for found in self.state.found)

    def _put_rest_away(self, values: Array, stands_for: Int) -> None:
        """Meshes never opened: bounded where their bound reaches the cut-off, open otherwise."""
        cut = values >= self._cutoff()
        self.state.bounded += int(stands_for[cut].sum())
        self.state.open += int(stands_for[~cut].sum())
        self.state.put_away(float(values.min(initial=np.inf)))

    def _look(self, walked: Walked) -> None:
        """Sharpen one mesh's bound; take a greedy choice if it could still win."""
        bound_s = walked.bound_s
        if bound_s >= self.state.best_s:
            self._bounded(bound_s)
            return
        if self._late():
            self._waiting.append(Unsettled(bound_s, walked))
            return
        opened = self._opened(walked, self.state.best_s)
        if not np.isfinite(opened.bound_s):
            self.state.out_of_memory += 1
            return
        bound_s = max(bound_s, opened.bound_s)
        if opened.solution is not None:
            self._offer(walked, opened.solution)
        greedy_s = opened.solution.step_s if opened.solution else np.inf
        is_solved = opened.is_exact and opened.solution is not None
        if bound_s >= self._cutoff() and not is_solved:
            self._bounded(bound_s)
            return
        if is_solved or bound_s >= greedy_s * (1.0 - self._limits.gap):
            self.state.solved += 1
            self.state.put_away(bound_s)
            return
        self._waiting.append(Unsettled(bound_s, walked, opened.solution))

    def _opened(self, walked: Walked, cutoff_s: float) -> Opening:
        """A mesh opened; again only where choices matter that were slower than all that did before."""
        scopes = Recompute(walked.batch.key.scopes)
        mesh = strategy_of(walked.batch, walked.row, (), scopes)
        known = self._openings.get(mesh)
        if known is None or (known.solution is None and known.bound_s < cutoff_s):
            known = open_mesh(walked.mesh, cutoff_s, self._late, self._paths)
            self._openings[mesh] = known
        return known

    def _bounded(self, bound_s: float) -> None:
        self.state.bounded += 1
        self.state.put_away(bound_s)

    def _settle(self) -> None:
        """Solve the inner problems that could still win, the lowest bound first."""
        waiting = sorted(self._waiting, key=lambda item: item.bound_s)
        for number, item in enumerate(waiting):
            if item.bound_s >= self._cutoff():
                self._bounded(item.bound_s)
                continue
            if self._late():
                self.state.open += 1
                self.state.put_away(item.bound_s)
                continue
            goal = Goal(item.walked.mesh, self._limits.gap, self.state.best_s, item.known, self._paths)
            result = solve_goal(goal, Effort(self._deadline, self._limits.seed, 1, self._limits.stop))
            if result.solution is not None:
                self._offer(item.walked, result.solution)
            if result.status is InnerStatus.INFEASIBLE:
                self.state.out_of_memory += 1
                continue
            self._count(result.status)
            self.state.put_away(max(result.lower_bound_s, item.bound_s))
            self._report("solve", min([np.inf, *(w.bound_s for w in waiting[number + 1 :])]))

    def _count(self, status: InnerStatus) -> None:
        if status is InnerStatus.STOPPED:
            self.state.open += 1
        elif status is InnerStatus.CUT:
            self.state.bounded += 1
        else:
            self.state.solved += 1

    def _offer(self, walked: Walked, solution: InnerSolution) -> None:
        chosen = self._recompute.chosen(walked.mesh, walked.batch.key.scopes, solution)
        if chosen is not None:
            strategy = strategy_of(walked.batch, walked.row, solution.stages, chosen[0])
            self.state.offer(Found(strategy, chosen[1]))

    def _least_waiting_s(self) -> float:
        return min((item.bound_s for item in self._waiting), default=np.inf)

    def _report(self, phase: str, ahead_s: float) -> None:
        """Progress: what is ahead has at least the bound `ahead_s`; a bound once known stays."""
        state = self.state
        best = state.best.step_s if state.best else np.inf
        self._floor_s = max(self._floor_s, min(ahead_s, state.lower_bound_s, state.best_s))
        bound = min(self._floor_s, state.best_s)
        gap = (best - bound) / best if np.isfinite(best) else None
        done = state.out_of_memory + state.bounded + state.solved + state.open
        known = best if np.isfinite(best) else None
        self._progress(Progress(phase, bound, known, gap, done, self._total))


def _degrees(strategy: Strategy) -> tuple[int, ...]:
    return tuple(getattr(strategy, axis) for axis in DEGREES)
