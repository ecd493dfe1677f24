"""The exact inner problem of one mesh: bounds, a greedy solution, and only then the integer solver.

    1. no partition, or no memory for any: infeasible
    2. greedy solution -> best; best and incumbent set the target (objective.py)
    3. subproblems: one K for all virtual stages at a time if the engine takes one, else a single one
    4. a subproblem whose bound (bounds.py) reaches the target is closed
    5. the others, least bound first: relaxed model -> simulate -> path cuts, until none reaches the target

The lower bound is the least over the subproblems: the bound that closed each, or (1 - gap) of the best step known
when the integer model refuted it.
"""

from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import numpy as np

from cost_models.chunk import MeshCosts
from planner.search.baselines import even_stages, solve_exhaustively
from planner.search.bounds import chunk_bound, inner_lower_bound, rank_programs
from planner.search.chunk_cuts import best_declared
from planner.search.few_cuts import best_of_few
from planner.search.greedy import full_rule, greedy, greedy_ranks
from planner.search.objective import Goal
from planner.search.problem import (
    InnerResult,
    InnerSolution,
    InnerStatus,
    has_partition,
    most_full,
    price_one,
)
from planner.search.rank_program import RankProgram
from planner.search.space.effort import Closed, Effort
from planner.search.windows import takes_every_cut


def solve_inner(
    mesh: MeshCosts,
    *,
    incumbent_s: float,
    gap: float,
    max_seconds: float,
    seed: int,
    stop: Callable[[], bool] = lambda: False,
) -> InnerResult:
    """Prove that no choice of this mesh is below (1 - gap) min(best, incumbent), or run out of time.

    `incumbent_s` is the best step known from other meshes (infinite without one); `gap` is relative. The solver has one
    worker, so that the answer depends on the arguments only, as long as the time suffices and nobody says `stop`.
    """
    return solve_goal(Goal(mesh, gap, incumbent_s), Effort(monotonic() + max_seconds, seed, 1, stop))


def solve_goal(goal: Goal, effort: Effort) -> InnerResult:
    """The same for a mesh of which a choice may be known."""
    start = monotonic()
    closed = _close(goal, effort)
    bound_s = min((part.bound_s for part in closed), default=np.inf)
    bound_s = min(bound_s, np.inf if goal.best is None else goal.best.step_s)
    is_proved = all(part.is_proved for part in closed)
    status = _status(goal, bound_s, is_proved=is_proved)
    rounds = sum(part.rounds for part in closed)
    return InnerResult(status, goal.best, bound_s, rounds, monotonic() - start)


def _status(goal: Goal, bound_s: float, *, is_proved: bool) -> InnerStatus:
    if not is_proved:
        return InnerStatus.STOPPED
    if goal.best is not None and bound_s >= (1.0 - goal.gap) * goal.best.step_s:
        return InnerStatus.OPTIMAL
    return InnerStatus.INFEASIBLE if np.isinf(bound_s) else InnerStatus.CUT


def _close(goal: Goal, effort: Effort) -> list[Closed]:
    mesh = goal.mesh
    if not has_partition(mesh):
        return []
    if mesh.vpp == 1 and not takes_every_cut(mesh.schedule, mesh.vpp, mesh.table.num_blocks):
        return _close_declared(goal)
    if mesh.schedule.splits_backward:
        return _close_declared(goal)
    if mesh.uniform_chunks and mesh.uniform_full:
        goal.offer(solve_exhaustively(mesh))
        return [] if goal.best is None else [Closed(goal.best.step_s, is_proved=True)]
    if mesh.vpp == 1 and not mesh.uniform_chunks:
        return _close_ranks(goal, effort)
    return _close_chunks(goal, effort)


def _close_declared(goal: Goal) -> list[Closed]:
    """A split backward, a very deep model: declared cuts are priced under one K, of the others a bound is known."""
    bound_s = inner_lower_bound(goal.mesh)
    if bound_s < goal.target_s:
        goal.offer(best_declared(goal.mesh, goal.target_s, pool=goal.paths)[1])
    return [Closed(bound_s, is_proved=np.isinf(bound_s) or bound_s >= goal.target_s)]


def _close_ranks(goal: Goal, effort: Effort) -> list[Closed]:
    """One chunk per rank: rank programs of every K that matters, then the cuts or the segment model of those left."""
    reach_s = goal.pipeline_target_s
    programs, rest_s = rank_programs(goal.mesh, reach_s if np.isfinite(reach_s) else None)
    if goal.best is None:
        goal.offer(greedy_ranks(goal.mesh, programs, goal.paths))
    reach_s = goal.pipeline_target_s
    if rest_s < reach_s or any(program.outside_s < reach_s for _, program in programs):
        # What was left out, larger K and longer segments, is only known to be worse than the bound, not the target.
        programs, rest_s = rank_programs(goal.mesh, reach_s)
    closed = [Closed(goal.step_of_bound(rest_s), is_proved=True)]
    for full, program in sorted(programs, key=lambda item: item[1].bound_s):
        if program.bound_s >= goal.pipeline_target_s:
            closed.append(Closed(goal.step_of_bound(program.bound_s), is_proved=True))
        else:
            closed.append(_close_few(goal, program, full) or _close_segments(goal, program, full, effort))
    return closed


def _close_few(goal: Goal, program: RankProgram, full: int | None) -> Closed | None:
    """Price every cut below the target; None where they are too many. All other cuts reach the target."""
    target_s = goal.target_s
    rule = full_rule(goal.mesh, full, program.table)
    is_few, best = best_of_few(goal.mesh, program, rule, goal.pipeline_target_s, goal.paths)
    if not is_few:
        return None
    goal.offer(best)
    return Closed(min(target_s, np.inf if best is None else best.step_s), is_proved=True)


def _close_segments(goal: Goal, program: RankProgram, full: int | None, effort: Effort) -> Closed:
    from planner.search.decide_segments import decide_segments

    return decide_segments(goal, program, full, effort)


def _close_chunks(goal: Goal, effort: Effort) -> list[Closed]:
    """Several chunks per rank: relaxation and boundaries model for every K whose bound is below the target."""
    from planner.search.decide_boundaries import BoundarySearch

    mesh = goal.mesh
    goal.offer(greedy(mesh, goal.paths))
    search = BoundarySearch(goal, effort)
    if not mesh.uniform_full:
        return [_at_least(search.decide(None, _near(goal, None)), goal.step_of_bound(chunk_bound(mesh, 0)))]
    closed: list[Closed] = []
    for full in range(mesh.least_full, most_full(mesh) + 1):
        bound_s = goal.step_of_bound(chunk_bound(mesh, full))
        if bound_s >= goal.target_s:
            closed.append(Closed(bound_s, is_proved=True))
            if full > mesh.least_full:  # the bound does not fall with K
                break
            continue
        closed.append(_at_least(search.decide(full, _near(goal, full)), bound_s))
    return closed


def _at_least(closed: Closed, bound_s: float) -> Closed:
    """The larger of two bounds on the same subproblem."""
    return replace(closed, bound_s=max(closed.bound_s, bound_s))


def _near(goal: Goal, full: int | None) -> InnerSolution:
    """The best solution so far under this K, or the even cut."""
    mesh = goal.mesh
    stages = goal.best.stages if goal.best is not None else even_stages(mesh)
    assert stages is not None  # has_partition
    rule = full_rule(mesh, full, None)
    return price_one(mesh, stages, tuple(rule(np.array([stages]))[0].tolist()))
