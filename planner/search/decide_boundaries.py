"""Several chunks per rank: is there a choice that reaches the target? Relaxation first, then whole numbers."""

from collections.abc import Iterable

import numpy as np
from ortools.sat.python import cp_model

from cost_models.chunk import MeshCosts
from cost_models.schedule import PathCoefficients
from planner.search.constraints import define_row, forbid_rank
from planner.search.cuts import distinct, pair_paths, rank_paths, solution_paths
from planner.search.domains import Domains
from planner.search.greedy import full_rule, improve
from planner.search.objective import Goal
from planner.search.problem import (
    InnerSolution,
    chunks_of,
    fits_rank,
    num_virtual_stages,
    price_one,
)
from planner.search.relaxation import Relaxation
from planner.search.rows import RowBuilder
from planner.search.scaling import Scale
from planner.search.solver import Answer, run_solver
from planner.search.space.effort import Closed, Effort
from planner.search.variables import boundary_variables, hint_boundaries, read_boundaries

# Moves of the local search from each relaxed answer: enough to find what is near, the rest is the solver's.
_MOVES = 3
# Up to this many ranks, paths over pairs of ranks are cheap enough to begin with.
_PAIRED_RANKS = 8


class BoundarySearch:
    """Decides one subproblem (K fixed for all virtual stages, or None: free); paths are kept for the next."""

    def __init__(self, goal: Goal, effort: Effort) -> None:
        self._goal, self._effort = goal, effort
        self._paths: list[PathCoefficients] = list(rank_paths(goal.mesh))

    def decide(self, full: int | None, near: InnerSolution) -> Closed:
        """Bound of the subproblem; `near` is a cut, which need not fit, around which paths are looked for."""
        goal = self._goal
        domains = Domains.of(goal.mesh, full)
        self._paths = distinct([*self._paths, *self._start(near)])
        target_s = goal.pipeline_target_s
        relaxation = Relaxation(goal.mesh, domains, target_s)
        relaxed = relaxation.tighten(self._paths, relaxation.point_of(near), self._effort.until)
        self._paths = distinct([*self._paths, *relaxed.paths])
        if relaxed.nothing_fits:
            return Closed(np.inf, is_proved=True)
        if relaxed.bound_s >= target_s:
            return Closed(goal.target_s, is_proved=True)
        if relaxed.rounded is not None:
            rule = full_rule(goal.mesh, full, None)
            goal.offer(improve(goal.mesh, np.array([relaxed.rounded]), rule, goal.paths))
        closed = _WholeNumbers(goal, domains, self._effort, self._paths).decide()
        if closed.is_proved:
            return closed
        return Closed(goal.step_of_bound(relaxed.bound_s), is_proved=False, rounds=closed.rounds)

    def _start(self, near: InnerSolution) -> Iterable[PathCoefficients]:
        mesh = self._goal.mesh
        yield from solution_paths(mesh, near, stretched=True)
        if mesh.pp <= _PAIRED_RANKS:
            yield from pair_paths(mesh, near)


class _WholeNumbers:
    """The integer model of one subproblem, which only grows: paths, forbidden ranks and lower targets."""

    def __init__(self, goal: Goal, domains: Domains, effort: Effort, paths: list[PathCoefficients]) -> None:
        mesh, target_s = goal.mesh, goal.pipeline_target_s
        self._goal, self._effort, self._domains = goal, effort, domains
        self._builder = RowBuilder(mesh)
        most_s = target_s if np.isfinite(target_s) else _longest_step(mesh)
        terms = (num_virtual_stages(mesh) + 1) * (mesh.table.num_blocks + 1)
        self._scale = Scale.for_target(most_s, terms, goal.gap)
        self._model = cp_model.CpModel()
        most = self._scale.up(most_s)
        self._variables = boundary_variables(self._model, domains, mesh.table.num_blocks, most)
        for row in (
            *self._builder.tails(),
            *self._builder.memory(domains.full),
            *self._builder.counts(most_s),
        ):
            define_row(self._model, self._variables, row, self._scale)
        self._add_paths(paths)
        if goal.best is not None:
            hint_boundaries(self._model, self._variables, goal.best)

    def decide(self) -> Closed:
        """Ask, simulate, cut, until the answer is no."""
        rounds = 0
        while True:
            answer, solver = run_solver(self._model, self._effort)
            rounds += 1
            if answer is Answer.NO:
                return Closed(self._goal.target_s, is_proved=True, rounds=rounds)
            if answer is Answer.UNKNOWN:
                return Closed(0.0, is_proved=False, rounds=rounds)
            self._refute(*read_boundaries(solver, self._variables))

    def _refute(self, stages: tuple[int, ...], full_layers: tuple[int, ...]) -> None:
        """Learn from an answer: the ranks that do not fit, better solutions, the paths it did not know."""
        goal, mesh = self._goal, self._goal.mesh
        chunks = chunks_of(mesh, np.array([stages]), np.array([full_layers]))
        short = np.flatnonzero(~fits_rank(mesh, chunks)[:, 0])
        answer = price_one(mesh, stages, full_layers)
        for rank in short.tolist():
            of_rank = self._builder.stages_of_rank[rank].tolist()
            forbid_rank(self._model, self._variables, of_rank, answer)
        paths = solution_paths(mesh, answer, stretched=True)
        improved = goal.offer(answer) if len(short) == 0 else False
        rule = full_rule(mesh, self._domains.full, None)
        near = improve(mesh, np.array([stages]), rule, goal.paths, _MOVES)
        if near is not None:
            paths += solution_paths(mesh, near, stretched=False)
            improved |= goal.offer(near)
        self._add_paths(paths)
        if improved and np.isfinite(goal.pipeline_target_s):
            self._model.add(self._variables.reach <= self._scale.up(goal.pipeline_target_s))

    def _add_paths(self, paths: list[PathCoefficients]) -> None:
        for path in paths:
            for row in self._builder.paths(path):
                define_row(self._model, self._variables, row, self._scale)


def _longest_step(mesh: MeshCosts) -> float:
    """More than any choice takes: all ranks one after another, everything recomputed, sends and tails included."""
    sums = RowBuilder(mesh).sums
    once_s = sums.forward_s[-1] + sums.backward_s[-1] + sums.extra_s[-1]
    sends_s = 2 * num_virtual_stages(mesh) * mesh.rules.send_s
    return float(mesh.num_micro_batches * (once_s + sends_s) + sums.sync_s[-1] + sums.tail_s[-1]) + 1e-9
