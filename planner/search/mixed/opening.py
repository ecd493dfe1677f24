"""One mesh of a pipeline over several pools: the exact choice of stages and full recompute, or a bound.

One chunk per rank with whole backwards: the rank program, narrowed to what is below the target, then every cut that is
left is simulated. Where too many are left the mesh stays open with the program's bound. Several chunks: every declared
cut is priced (shares.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cost_models.chunk import Index, MeshCosts
from cost_models.mixed_costs import MixedCosts
from planner.search.band_program import best_cut
from planner.search.bounding.path_pool import PathPool
from planner.search.few_cuts import best_of_few
from planner.search.greedy import FullRule, improve
from planner.search.mixed.rank_program import (
    MixedProgram,
    RankTables,
    narrowed,
    solve_mixed_program,
)
from planner.search.mixed.shares import best_shared
from planner.search.problem import InnerSolution, has_partition, most_full, pipeline_of, step_of
from planner.search.space.opening import Opening

MOVES = 12
"""Moves of single blocks by which the cut of a program is improved."""

Late = Callable[[], bool]


def open_mixed(mesh: MixedCosts, best_s: float, gap: float, late: Late, paths: PathPool) -> Opening:
    """Look at a mesh; choices that do not beat `best_s` by more than the gap do not matter.

    `paths` are those of meshes before it.
    """
    if not has_partition(mesh):
        return Opening(np.inf, None)
    if mesh.vpp > 1:
        bound_s, best = best_shared(mesh, best_s * (1.0 - gap), late)
        return Opening(bound_s, best, is_exact=not late())
    return _RankSearch(mesh, best_s, gap, paths).run(late)


@dataclass(slots=True)
class _RankSearch:
    """The search of one mesh with one chunk per rank."""

    mesh: MixedCosts
    best_s: float
    gap: float
    paths: PathPool
    found: InnerSolution | None = None
    bound_s: float = np.inf
    is_exact: bool = True

    def run(self, late: Late) -> Opening:
        """All K in turn, as long as the step without memory is below the target."""
        mesh = self.mesh
        fulls: list[int | None] = (
            list(range(mesh.least_full, most_full(mesh) + 1)) if mesh.uniform_full else [None]
        )
        if mesh.uniform_full and self._is_slow(None):
            return Opening(step_of(mesh, self.bound_s), None, is_exact=True)
        for full in fulls:
            if full and self._is_slow(full):
                break
            program = solve_mixed_program(mesh, full, self._reach())
            self._close(program, full)
            everything = program.tables.fits == program.tables.band.legal
            if full is not None and everything.all() and self._target() <= program.outside_s:
                break  # every larger K is slower than this one with the same cut, which fits
            if late():
                self.is_exact = False
                if full is not None and full < most_full(mesh):
                    self.bound_s = min(self.bound_s, self._roomy(full + 1))
                break
        bound_s = min(step_of(mesh, self.bound_s), np.inf if self.found is None else self.found.step_s)
        return Opening(bound_s, self.found, self.is_exact)

    def _target(self) -> float:
        """Pipeline seconds from which on a choice does not matter; infinite without a step to beat."""
        best_s = min(self.best_s, np.inf if self.found is None else self.found.step_s)
        return pipeline_of(self.mesh, best_s * (1.0 - self.gap)) if np.isfinite(best_s) else np.inf

    def _reach(self) -> float:
        target_s = self._target()
        return target_s if np.isfinite(target_s) else 0.0

    def _roomy(self, full: int) -> float:
        """Bound of K and all larger ones: time does not fall with K, so without memory it holds for them too."""
        return solve_mixed_program(self.mesh.mapped(_unlimited), full).bound_s

    def _free(self, target_s: float) -> float:
        """Bound of all K: every rank takes its own."""
        return solve_mixed_program(self.mesh, None, target_s).bound_s

    def _is_slow(self, full: int | None) -> bool:
        """Whether K and all larger ones are at the target at least; then they are put away. None: every K, for none is
        below what each rank takes that recomputes as little as it can."""
        target_s = self._target()
        if not np.isfinite(target_s):
            return False
        bound_s = self._roomy(full) if full is not None else self._free(target_s)
        if bound_s < target_s:
            return False
        self.bound_s = min(self.bound_s, bound_s)
        return True

    def _close(self, program: MixedProgram, full: int | None) -> None:
        """Put one K away: by its bound, or with all cuts below the target simulated."""
        if program.bound_s >= self._target() or not np.isfinite(program.bound_s):
            self.bound_s = min(self.bound_s, program.bound_s)
            return
        rule = _rule(program.tables, full)
        cut = best_cut(program.through_s, program.tables.band, self.mesh.pp)
        self._offer(improve(self.mesh, np.array([cut]), rule, self.paths, MOVES))
        target_s = self._target()
        if not np.isfinite(target_s):
            self.is_exact = False
            self.bound_s = min(self.bound_s, program.bound_s)
            return
        if target_s > program.outside_s:
            program = solve_mixed_program(self.mesh, full, target_s)
            rule = _rule(program.tables, full)
        program = narrowed(self.mesh, program, target_s)
        if program.bound_s >= target_s:
            self.bound_s = min(self.bound_s, program.bound_s)
            return
        settled, best = best_of_few(self.mesh, program, rule, target_s, self.paths)  # type: ignore[arg-type]
        self._offer(best)
        self.is_exact &= settled
        self.bound_s = min(self.bound_s, target_s if settled else program.bound_s)

    def _offer(self, solution: InnerSolution | None) -> None:
        if solution is not None and solution.step_s < (np.inf if self.found is None else self.found.step_s):
            self.found = solution


def _unlimited(part: MeshCosts) -> MeshCosts:
    return replace(part, rules=replace(part.rules, allocated_limit_bytes=np.inf))


def _rule(tables: RankTables, full: int | None) -> FullRule:
    """K fixed, or each rank's smallest that fits."""
    if full is not None:
        return lambda stages: np.minimum(full, stages)
    width = tables.band.start.shape[1]
    ranks = np.arange(len(tables.fits))[None, :]

    def looked_up(stages: Index) -> Index:
        found: Index = tables.full_layers[ranks, np.cumsum(stages, axis=1), np.minimum(stages, width) - 1]
        return found

    return looked_up
