"""Constraints of the integer models, one function each with its formula (symbols in problem.py)."""

import numpy as np
from ortools.sat.python import cp_model

from cost_models.chunk import Array
from cost_models.schedule import PathCoefficients
from planner.search.problem import InnerSolution
from planner.search.rank_program import RankProgram
from planner.search.rows import Row, RowKind
from planner.search.scaling import Scale, tables_on_domains
from planner.search.segments import SegmentTable
from planner.search.variables import BoundaryVariables, SegmentVariables

# ---------------------------------------------------------------- segments, v = 1


def define_one_segment_per_rank(model: cp_model.CpModel, variables: SegmentVariables) -> None:
    """Sum over options of y[i, a, b] = 1 for every rank."""
    for chosen in variables.chosen:
        model.add_exactly_one(chosen)


def define_contiguity(model: cp_model.CpModel, variables: SegmentVariables) -> None:
    """Rank i + 1 begins where rank i stops: sum_a y[i, a, b] = sum_c y[i + 1, b, c] for every block b."""
    for rank in range(len(variables.chosen) - 1):
        stop, start = variables.stop[rank], variables.stop[rank + 1] - variables.blocks[rank + 1]
        for block in np.unique(np.concatenate((stop, start))).tolist():
            ends = [variables.chosen[rank][at] for at in np.flatnonzero(stop == block)]
            begins = [variables.chosen[rank + 1][at] for at in np.flatnonzero(start == block)]
            model.add(sum(ends) == sum(begins))


def define_segment_tails(
    model: cp_model.CpModel, variables: SegmentVariables, table: SegmentTable, scale: Scale
) -> None:
    """Longest tail: o >= sum over options of o[i, a, b] y[i, a, b] for every rank."""
    for rank, chosen in enumerate(variables.chosen):
        costs = scale.down(_of_options(table.tail_s, variables, rank))
        model.add(variables.tail >= cp_model.LinearExpr.weighted_sum(chosen, costs))


def define_rank_cuts(
    model: cp_model.CpModel, variables: SegmentVariables, program: RankProgram, scale: Scale, target: int
) -> None:
    """Rank bound of the chosen option (rank_program.py): sum over options of through[i, a, b] y <= target."""
    for rank, chosen in enumerate(variables.chosen):
        costs = scale.down(_of_options(program.through_s[rank], variables, rank))
        model.add(cp_model.LinearExpr.weighted_sum(chosen, costs) <= target)


def define_segment_path_cut(
    model: cp_model.CpModel,
    variables: SegmentVariables,
    table: SegmentTable,
    path: PathCoefficients,
    limits: tuple[Scale, int, float],
) -> None:
    """sum_i sum over options (f_i F + b_i B + [i ends] r) y + edges e + o <= target."""
    scale, target, send_s = limits
    chosen: list[cp_model.IntVar] = []
    costs: list[int] = []
    for rank, of_rank in enumerate(variables.chosen):
        place = table.table_of_rank[rank]
        seconds = path.forward_count[rank, 0] * _of_options(table.forward_s, variables, rank)
        seconds += path.backward_count[rank, 0] * _of_options(table.backward_s[place], variables, rank)
        if rank == path.end_rank:
            seconds += _of_options(table.exposed_s[place], variables, rank)
        chosen += of_rank
        costs += scale.down(seconds)
    sends = scale.down_one(path.edge_count * send_s)
    model.add(cp_model.LinearExpr.weighted_sum(chosen, costs) + sends + variables.tail <= target)


def _of_options(values: Array, variables: SegmentVariables, rank: int) -> Array:
    chosen: Array = values[variables.stop[rank], variables.blocks[rank] - 1]
    return chosen


# ---------------------------------------------------------------- boundaries, v > 1


def define_row(model: cp_model.CpModel, variables: BoundaryVariables, row: Row, scale: Scale) -> None:
    """A row of rows.py. PIPELINE: row + o <= reach;  TAIL: row <= o;  MEMORY, COUNT: row <= 0."""
    is_seconds = row.kind in (RowKind.PIPELINE, RowKind.TAIL)
    expression = _row_expression(model, variables, row, scale if is_seconds else _SHARES)
    if row.kind is RowKind.PIPELINE:
        model.add(expression + variables.tail <= variables.reach)
    elif row.kind is RowKind.TAIL:
        model.add(expression <= variables.tail)
    else:
        model.add(expression <= 0)


def forbid_rank(
    model: cp_model.CpModel, variables: BoundaryVariables, stages: list[int], choice: InnerSolution
) -> None:
    """Not these virtual stages of a rank together, x[g], n[g] and k[g] each: they do not fit in memory."""
    involved: list[cp_model.IntVar] = []
    values: list[int] = []
    for stage in stages:
        involved += [variables.position(model, "x", stage), variables.size[stage]]
        values += [sum(choice.stages[:stage]), choice.stages[stage]]
        if variables.full:
            involved.append(variables.full[stage])
            values.append(choice.full_layers[stage])
    model.add_forbidden_assignments(involved, [tuple(values)])


# Bytes are shares of the limit; a share of 1e-9 is far below what the cost model knows.
_SHARES = Scale(1e9)


def _row_expression(
    model: cp_model.CpModel, variables: BoundaryVariables, row: Row, scale: Scale
) -> cp_model.LinearExpr:
    """Whole-number lower bound on the row: a line in x[g] = sum n and s[g] = x[g] + k[g], and what bends."""
    domains, stages = variables.domains, np.arange(len(variables.size))
    low, high = np.array(domains.low), np.array(domains.high)
    boundary = row.boundary if variables.full else row.without_splits()
    at_boundary = tables_on_domains(boundary, low, high, scale)
    parts = [("x", at_boundary)]
    slopes = at_boundary.slopes[:-1].copy()
    factors: list[int] = []
    if variables.full:
        at_split = tables_on_domains(row.split, low[:-1], high[1:], scale)
        parts.append(("s", at_split))
        slopes += at_split.slopes
        factors = at_split.slopes.tolist()
    # n[h] is in the position of every stage behind it, and in L, the position of the end.
    behind = np.concatenate((np.cumsum(slopes[::-1])[::-1], [0]))[stages + 1] + at_boundary.slopes[-1]
    involved = [*variables.size, *variables.full]
    weights = [*behind.tolist(), *factors]
    constant = scale.down_one(row.constant)
    for name, tables in parts:
        constant += int(tables.constants.sum())
        for (stage, block), term in tables.terms.items():
            involved.append(variables.literal(model, name, stage, block))
            weights.append(term)
    return cp_model.LinearExpr.weighted_sum(involved, weights) + constant
