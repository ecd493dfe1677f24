"""Variables of the integer models; each family has one sentence.

Segments (v = 1)      y[i, a, b] = 1 if rank i holds blocks a..b-1
Boundaries (v > 1)    n[g] = blocks of virtual stage g; k[g] = how many of them are fully recomputed
                      x[g] = sum_{h<g} n[h], its first block; s[g] = x[g] + k[g] (made where a table bends)
                      z[x, b] = 1 if that position is b (likewise)
                      reach = what pipeline and tail come to at most
Both                  o = the longest tail in whole units
"""

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
    """Sizes and recomputed blocks; positions and their literals are made when first asked for.

    Rows are sums of sizes with weights of one sign, which propagate well; written in positions they would be
    differences, which do not.
    """

    size: tuple[cp_model.IntVar, ...]
    full: tuple[cp_model.IntVar, ...]  # empty when nothing is recomputed in full
    domains: Domains
    tail: cp_model.IntVar
    reach: cp_model.IntVar
    positions: dict[tuple[str, int], cp_model.IntVar]
    literals: dict[tuple[str, int, int], cp_model.IntVar]

    def position(self, model: cp_model.CpModel, name: str, stage: int) -> cp_model.IntVar:
        """x[stage] or s[stage], by `name`."""
        key = (name, stage)
        if key not in self.positions:
            high = self.domains.high[stage + (name == "s")]
            made = model.new_int_var(self.domains.low[stage], high, f"{name}[{stage}]")
            before = sum(self.size[:stage])
            model.add(made == (before + self.full[stage] if name == "s" else before))
            self.positions[key] = made
        return self.positions[key]

    def literal(self, model: cp_model.CpModel, name: str, stage: int, block: int) -> cp_model.IntVar:
        """z[x or s of the stage, block]."""
        key = (name, stage, block)
        if key not in self.literals:
            chosen = model.new_bool_var(f"z[{name}[{stage}],{block}]")
            position = self.position(model, name, stage)
            model.add(position == block).only_enforce_if(chosen)
            model.add(position != block).only_enforce_if(~chosen)
            self.literals[key] = chosen
        return self.literals[key]


def boundary_variables(
    model: cp_model.CpModel, domains: Domains, num_blocks: int, most: int
) -> BoundaryVariables:
    """n[g] and k[g] with the rule of the fixed K; sum n = L; `most` units of seconds."""
    size: list[cp_model.IntVar] = []
    full: list[cp_model.IntVar] = []
    for stage in range(len(domains.low) - 1):
        largest = domains.high[stage + 1] - domains.low[stage]
        smallest = max(1, domains.low[stage + 1] - domains.high[stage])
        size.append(model.new_int_var(smallest, largest, f"n[{stage}]"))
        if domains.splits:
            full.append(model.new_int_var(0, min(largest, domains.most_full), f"k[{stage}]"))
            if domains.full is None:
                model.add(full[-1] <= size[-1])
            else:
                model.add_min_equality(full[-1], [size[-1], domains.full])
    model.add(sum(size) == num_blocks)
    tail, reach = model.new_int_var(0, most, "o"), model.new_int_var(0, most, "reach")
    return BoundaryVariables(tuple(size), tuple(full), domains, tail, reach, {}, {})


def hint_segments(model: cp_model.CpModel, variables: SegmentVariables, solution: InnerSolution) -> None:
    """Start the search from a known cut."""
    stops = np.cumsum(solution.stages)
    for rank, chosen in enumerate(variables.chosen):
        is_known = (variables.stop[rank] == stops[rank]) & (variables.blocks[rank] == solution.stages[rank])
        for variable, known in zip(chosen, is_known.tolist(), strict=True):
            model.add_hint(variable, known)


def hint_boundaries(model: cp_model.CpModel, variables: BoundaryVariables, solution: InnerSolution) -> None:
    """Start the search from a known cut."""
    for variable, blocks in zip(variables.size, solution.stages, strict=True):
        model.add_hint(variable, blocks)
    for variable, blocks in zip(variables.full, solution.full_layers, strict=False):
        model.add_hint(variable, blocks)


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
    stages = tuple(solver.value(variable) for variable in variables.size)
    full_layers = tuple(solver.value(variable) for variable in variables.full)
    return stages, full_layers or (0,) * len(stages)
