"""The search over the whole space: mesh bounds, then exact inner problems in order of their bounds, one certificate.

Every mesh ends in one of four ways: out of memory (a memory lower bound exceeds the limit), bounded (its lower bound is
within the gap of the best step or above), solved (its own optimum is known to the gap), or open (time ran out). The
lower bound of the space is the least of the best step and of every mesh's bound at the moment it was put away.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cost_models.chunk import Array, MeshCosts
from cost_models.mesh import MeshBatch
from cost_models.pricing import Pricer
from cost_models.rows import model_rows
from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.specs.strategy import Strategy
from planner.candidates import strategy_of
from planner.plan import Progress
from planner.search.memory_bounds import FullRecompute, forced
from planner.search.mesh_bounds import frequent_blocks, mesh_sums, step_bounds
from planner.search.mesh_table import all_full, all_recomputed, without_full
from planner.search.opening import open_mesh
from planner.search.polish import Polish
from planner.search.problem import InnerSolution, InnerStatus
from planner.search.solve import solve_inner
from planner.search.walk import PRICED_TOGETHER, Walk, Walked

POLISHED = 8
POLISH_WITHIN = 1.03
"""How many of the best plans are improved at the end, and how close to the best they must be."""

MORE_PLANS_TRIED = 24
MORE_PLANS_WALKED = 512
MORE_PLANS_WITHIN = 1.5
"""How many meshes behind the best are opened and walked for alternatives, and how much slower these may be."""

DEGREES = ("tp", "cp", "pp", "ep", "dp")
"""Axes in which such alternatives differ from all plans found before."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """When to stop, how close to come, the seed of the solver, and how many alternatives are wanted."""

    gap: float
    max_seconds: float
    seed: int
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class RecomputeRule:
    """What the inner problem may do about full recompute."""

    free: bool  # the number of fully recomputed blocks is chosen
    everywhere: bool  # every block is recomputed in full
    takes: Callable[[Recompute], bool]  # what pins and bans leave
    scopes: tuple[str, ...]  # every scope of the model

    def apply(self, mesh: MeshCosts, scopes: tuple[str, ...]) -> MeshCosts:
        """The mesh as the inner problem should see it; full and selective do not mix."""
        if self.everywhere:
            return all_full(mesh)
        return mesh if self.free and not scopes else without_full(mesh)

    def free_with(self, scopes: tuple[str, ...]) -> bool:
        """Whether the number of fully recomputed blocks of meshes with this base is chosen."""
        return self.free and not scopes and not self.everywhere


@dataclass(frozen=True, slots=True)
class Found:
    """A strategy that fits, with its step as the simulator gives it."""

    strategy: Strategy
    step_s: float


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

    @property
    def best_s(self) -> float:
        """Step of the best strategy, infinite while there is none."""
        return self.best.step_s if self.best else np.inf

    def offer(self, candidate: Found) -> None:
        """Keep a strategy, as the best one if it is."""
        self.found.append(candidate)
        if candidate.step_s < self.best_s:
            self.best = candidate

    def put_away(self, bound_s: float) -> None:
        """Remember the bound of a mesh that is not looked at again."""
        self.lower_bound_s = min(self.lower_bound_s, bound_s)


@dataclass(frozen=True, slots=True)
class _Open:
    """A mesh whose inner problem is not settled, with its sharpened bound."""

    bound_s: float
    walked: Walked


class SpaceSearch:
    """Searches legal meshes for the least step."""

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
        self.state = SearchState()

    def run(self, batches: tuple[MeshBatch, ...]) -> SearchState:
        """Search until the gap is closed or time is up."""
        walk = Walk.of(batches, [self._bounds(batch) for batch in batches])
        total = sum(batch.size for batch in batches)
        self.state.out_of_memory = walk.num_impossible
        waiting, reached = self._open_in_order(walk, total)
        self._settle(waiting, total)
        self._polish()
        if self.state.best is not None:
            self._more_plans(walk, reached)
        return self.state

    def least_bound_s(self, batches: tuple[MeshBatch, ...]) -> float:
        """A step time that no layout beats, without opening a mesh; infinite where none fits in memory."""
        return float(min((self._bounds(batch).min(initial=np.inf) for batch in batches), default=np.inf))

    def _polish(self) -> None:
        """Improve the best plans by small steps, beyond the declared cuts and scopes where that helps."""
        rule = self._recompute
        polish = Polish(self._pricer, rule.apply, rule.takes, rule.scopes)
        near = sorted(self.state.found, key=lambda found: found.step_s)
        for found in [f for f in near if f.step_s <= self.state.best_s * POLISH_WITHIN][:POLISHED]:
            if self._late():
                return
            better = polish.improved(found.strategy)
            if better is not None and better[1] < found.step_s:
                self.state.offer(Found(*better))

    def _cutoff(self) -> float:
        """Bounds from here on cannot improve on the best by more than the gap."""
        return self.state.best_s * (1.0 - self._limits.gap)

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _bounds(self, batch: MeshBatch) -> Array:
        """Lower bounds of a batch, infinite where nothing fits."""
        sums = mesh_sums(self._pricer, batch)
        if self._recompute.everywhere:
            sums = all_recomputed(sums)
        model, job = self._pricer.model, self._pricer.job
        full = FullRecompute(
            self._recompute.free_with(batch.key.scopes), self._pricer.engine.space(model, job).uniform_full
        )
        blocks = frequent_blocks(model_rows(model, job))
        needed = forced(batch, sums, job.global_batch, blocks, full, self._late)
        return step_bounds(self._pricer, batch, sums, needed)

    def _open_in_order(self, walk: Walk, total: int) -> tuple[list[_Open], int]:
        """Walk meshes by rising bound: sharpen the bound, try a greedy choice, keep what is not settled.

        Also says how far the walk went; the meshes behind are put away by their bounds.
        """
        waiting: list[_Open] = []
        for start in range(0, walk.order.size, PRICED_TOGETHER):
            bounds = walk.bounds_from(start)
            if bounds[0] >= self.state.best_s or self._late():
                self._put_rest_away(bounds)
                return sorted(waiting, key=lambda item: item.bound_s), start
            for walked in walk.block(start, self._pricer, self._recompute.apply):
                self._look(walked, waiting)
            self._report("bounds", float(bounds[0]), min(start + PRICED_TOGETHER, walk.order.size), total)
        return sorted(waiting, key=lambda item: item.bound_s), walk.order.size

    def _more_plans(self, walk: Walk, start: int) -> None:
        """Open a few meshes behind the best for alternatives whose degrees differ; bounds stay as they are.

        Counted, not timed, so that the answer does not depend on the machine.
        """
        seen = {_degrees(found.strategy) for found in self.state.found}
        worth_s, tries = self.state.best_s * MORE_PLANS_WITHIN, MORE_PLANS_TRIED
        for first in range(start, min(walk.order.size, start + MORE_PLANS_WALKED), PRICED_TOGETHER):
            for walked in walk.block(first, self._pricer, self._recompute.apply):
                if len(seen) > self._limits.wanted or tries == 0 or self._late():
                    return
                degrees = tuple(walked.batch.row(walked.row)[axis] for axis in DEGREES)
                if degrees in seen or walked.bound_s >= worth_s:
                    continue
                tries -= 1
                solution = open_mesh(walked.mesh, worth_s, self._late).solution
                if solution is not None:
                    self._offer(walked, solution)
                    seen.add(degrees)

    def _put_rest_away(self, values: Array) -> None:
        """Meshes never opened: bounded where their bound reaches the cut-off, open otherwise."""
        cut = values >= self._cutoff()
        self.state.bounded += int(cut.sum())
        self.state.open += int((~cut).sum())
        self.state.put_away(float(values.min()))

    def _look(self, walked: Walked, waiting: list[_Open]) -> None:
        """Sharpen one mesh's bound; take a greedy choice if it could still win."""
        bound_s = walked.bound_s
        if bound_s >= self.state.best_s:
            self._bounded(bound_s)
            return
        if self._late():
            waiting.append(_Open(bound_s, walked))
            return
        opened = open_mesh(walked.mesh, self.state.best_s, self._late)
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
        waiting.append(_Open(bound_s, walked))

    def _bounded(self, bound_s: float) -> None:
        self.state.bounded += 1
        self.state.put_away(bound_s)

    def _settle(self, waiting: list[_Open], total: int) -> None:
        """Solve the inner problems that could still win, the lowest bound first."""
        for number, item in enumerate(waiting):
            if item.bound_s >= self._cutoff():
                self._bounded(item.bound_s)
                continue
            left = self._deadline - time.monotonic()
            if left <= 0:
                self.state.open += 1
                self.state.put_away(item.bound_s)
                continue
            result = solve_inner(
                item.walked.mesh,
                incumbent_s=self.state.best_s,
                gap=self._limits.gap,
                max_seconds=left,
                seed=self._limits.seed,
            )
            if result.solution is not None:
                self._offer(item.walked, result.solution)
            if result.status is InnerStatus.INFEASIBLE:
                self.state.out_of_memory += 1
                continue
            self._count(result.status)
            self.state.put_away(max(result.lower_bound_s, item.bound_s))
            floor = min([self.state.lower_bound_s, *(w.bound_s for w in waiting[number + 1 :])])
            self._report("solve", floor, total - (len(waiting) - number - 1), total)

    def _count(self, status: InnerStatus) -> None:
        if status is InnerStatus.STOPPED:
            self.state.open += 1
        elif status is InnerStatus.CUT:
            self.state.bounded += 1
        else:
            self.state.solved += 1

    def _offer(self, walked: Walked, solution: InnerSolution) -> None:
        full: int | tuple[int, ...] = solution.full_layers
        if self._recompute.everywhere:
            full = ALL_LAYERS
        elif walked.mesh.uniform_full or not any(solution.full_layers):
            full = max(solution.full_layers)
        recompute = Recompute(walked.batch.key.scopes, full)
        strategy = strategy_of(walked.batch, walked.row, solution.stages, recompute)
        self.state.offer(Found(strategy, solution.step_s))

    def _report(self, phase: str, bound_s: float, done: int, total: int) -> None:
        best = self.state.best_s
        bound = min(bound_s, self.state.lower_bound_s, best)
        gap = (best - bound) / best if np.isfinite(best) else None
        self._progress(Progress(phase, bound, best if np.isfinite(best) else None, gap, done, total))


def _degrees(strategy: Strategy) -> tuple[int, ...]:
    return tuple(getattr(strategy, axis) for axis in DEGREES)
