"""Variables of the integer models; each family has one sentence.

Segments (v = 1)      y[i, a, b] = 1 if rank i holds blocks a..b-1
Boundaries (v > 1)    x[g] = first block of virtual stage g; s[g] = end of its fully recomputed blocks;
                      z[x, k] = 1 if that variable is k (only where a table bends)
                      reach = what pipeline and tail come to at most
Both                  o = the longest tail in whole units
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from cost_models.chunk import Index
from planner.search.domains import Domains
from planner.search.problem import InnerSolution
from planner.search.rank_program import RankProgram


@dataclass(frozen=True, slots=True)
class SegmentVariables:
    """Options of every rank: where the segment stops, its blocks, and whether it is chosen."""

    stop: tuple[Index, ...]
    blocks: tuple[Index, ...]
    chosen: tuple[list[cp_model.IntVar], ...]
    tail: cp_model.IntVar


def segment_variables(
    model: cp_model.CpModel, program: RankProgram, target_s: float, most_tail: int
) -> SegmentVariables:
    """A variable for every (rank, segment) whose least bound is at most the target; there may be none."""
    found = [np.nonzero(through_s <= target_s) for through_s in program.through_s]
    stop = tuple(rows.astype(np.int64) for rows, _ in found)
    blocks = tuple(columns.astype(np.int64) + 1 for _, columns in found)
    chosen = tuple(
        [model.new_bool_var(f"y[{rank},{b - n},{b}]") for b, n in zip(stops, sizes, strict=True)]
        for rank, (stops, sizes) in enumerate(zip(stop, blocks, strict=True))
    )
    return SegmentVariables(stop, blocks, chosen, model.new_int_var(0, most_tail, "o"))


@dataclass(frozen=True, slots=True)
class BoundaryVariables:
    """Boundaries and splits with their ranges; `literals` holds z[variable, position] as far as it exists."""

    boundary: tuple[cp_model.IntVar, ...]
    split: tuple[cp_model.IntVar, ...]  # empty when nothing is recomputed in full
    domains: Domains
    literals: dict[tuple[int, int], cp_model.IntVar]
    tail: cp_model.IntVar
    reach: cp_model.IntVar

    def literal(self, model: cp_model.CpModel, variable: cp_model.IntVar, position: int) -> cp_model.IntVar:
        """z[variable, position], made when first asked for."""
        key = (variable.index, position)
        if key not in self.literals:
            chosen = model.new_bool_var(f"z[{variable.name},{position}]")
            model.add(variable == position).only_enforce_if(chosen)
            model.add(variable != position).only_enforce_if(~chosen)
            self.literals[key] = chosen
        return self.literals[key]


def boundary_variables(model: cp_model.CpModel, domains: Domains, most: int) -> BoundaryVariables:
    """x[g] and s[g] with their order and the rule of the fixed K; `most` units of seconds."""
    ranges = list(zip(domains.low, domains.high, strict=True))
    boundary = tuple(model.new_int_var(low, high, f"x[{g}]") for g, (low, high) in enumerate(ranges))
    split: list[cp_model.IntVar] = []
    for stage, (left, right) in enumerate(zip(boundary, boundary[1:], strict=False)):
        model.add(right >= left + 1)
        if domains.splits:
            end = model.new_int_var(ranges[stage][0], ranges[stage + 1][1], f"s[{stage}]")
            split.append(end)
            if domains.full is None:
                model.add(end >= left)
                model.add(end <= right)
            else:
                model.add_min_equality(end, [left + domains.full, right])
    tail, reach = model.new_int_var(0, most, "o"), model.new_int_var(0, most, "reach")
    return BoundaryVariables(boundary, tuple(split), domains, {}, tail, reach)


def hint_segments(model: cp_model.CpModel, variables: SegmentVariables, solution: InnerSolution) -> None:
    """Start the search from a known cut."""
    stops = np.cumsum(solution.stages)
    for rank, chosen in enumerate(variables.chosen):
        is_known = (variables.stop[rank] == stops[rank]) & (variables.blocks[rank] == solution.stages[rank])
        for variable, known in zip(chosen, is_known.tolist(), strict=True):
            model.add_hint(variable, known)


def hint_boundaries(model: cp_model.CpModel, variables: BoundaryVariables, solution: InnerSolution) -> None:
    """Start the search from a known cut."""
    bounds = np.concatenate(([0], np.cumsum(solution.stages))).tolist()
    for variable, position in zip(variables.boundary, bounds, strict=True):
        model.add_hint(variable, position)
    for variable, start, full in zip(variables.split, bounds, solution.full_layers, strict=False):
        model.add_hint(variable, start + full)


def read_segments(solver: cp_model.CpSolver, variables: SegmentVariables) -> tuple[int, ...]:
    """Blocks per rank of the solver's answer."""
    return tuple(
        int(sizes[[solver.boolean_value(variable) for variable in chosen].index(True)])
        for sizes, chosen in zip(variables.blocks, variables.chosen, strict=True)
    )


def read_boundaries(
    solver: cp_model.CpSolver, variables: BoundaryVariables
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks and fully recomputed blocks per virtual stage of the solver's answer."""
    bounds = _values(solver, variables.boundary)
    ends = _values(solver, variables.split) if variables.split else bounds[:-1]
    stages = tuple(right - left for left, right in zip(bounds, bounds[1:], strict=False))
    return stages, tuple(end - left for left, end in zip(bounds, ends, strict=False))


def _values(solver: cp_model.CpSolver, variables: Sequence[cp_model.IntVar]) -> list[int]:
    return [solver.value(variable) for variable in variables]
