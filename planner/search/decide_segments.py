"""One chunk per rank: is there a cut that reaches the target? Integer model over segments, closed by path cuts."""

from dataclasses import dataclass
from time import monotonic

import numpy as np
from ortools.sat.python import cp_model

from cost_models.schedule import PathCoefficients
from planner.search import constraints as define
from planner.search.cuts import solution_paths
from planner.search.greedy import full_rule, improve
from planner.search.objective import Goal
from planner.search.rank_program import RankProgram
from planner.search.scaling import Scale
from planner.search.solver import Answer, run_solver
from planner.search.space.effort import Closed, Effort
from planner.search.variables import SegmentVariables, hint_segments, read_segments, segment_variables

# Moves of the local search from each relaxed answer: enough to find what is near, the rest is the solver's.
_MOVES = 5


@dataclass(frozen=True, slots=True)
class _Question:
    model: cp_model.CpModel
    variables: SegmentVariables
    scale: Scale


def decide_segments(goal: Goal, program: RankProgram, full: int | None, effort: Effort) -> Closed:
    """Answer for K = `full` (None: the smallest that fits on each rank), keeping better solutions in `goal`."""
    mesh = goal.mesh
    rule = full_rule(mesh, full, program.table)
    paths: list[PathCoefficients] = []
    if goal.best is not None:
        paths += solution_paths(mesh, goal.best, stretched=False)
    rounds = 0
    while program.bound_s <= goal.pipeline_target_s:
        question = _ask(goal, program, paths)
        answer, solver = run_solver(question.model, effort)
        rounds += 1
        if answer is Answer.NO:
            return Closed(goal.target_s, is_proved=True, rounds=rounds)
        if answer is Answer.UNKNOWN or monotonic() > effort.until:
            return Closed(goal.step_of_bound(program.bound_s), is_proved=False, rounds=rounds)
        stages = read_segments(solver, question.variables)
        for moves in (0, _MOVES):
            reached = improve(mesh, np.array([stages]), rule, goal.paths, moves)
            if reached is not None:
                goal.offer(reached)
                paths += solution_paths(mesh, reached, stretched=False)
    return Closed(goal.step_of_bound(program.bound_s), is_proved=True, rounds=rounds)


def _ask(goal: Goal, program: RankProgram, paths: list[PathCoefficients]) -> _Question:
    """The model of one round; objective.py says why it has a target and no objective."""
    target_s, mesh = goal.pipeline_target_s, goal.mesh
    scale = Scale.for_target(target_s, mesh.pp, goal.gap)
    target = scale.up(target_s)
    model = cp_model.CpModel()
    variables = segment_variables(model, program, target_s, target)
    define.define_one_segment_per_rank(model, variables)
    define.define_contiguity(model, variables)
    define.define_segment_tails(model, variables, program.table, scale)
    define.define_rank_cuts(model, variables, program, scale, target)
    for path in paths:
        limits = (scale, target, mesh.rules.send_s)
        define.define_segment_path_cut(model, variables, program.table, path, limits)
    if goal.best is not None:
        hint_segments(model, variables, goal.best)
    return _Question(model, variables, scale)
