"""Constraints of the integer models, one function each with its formula (symbols in problem.py)."""

from collections.abc import Iterator

import numpy as np
from ortools.sat.python import cp_model

from cost_models.chunk import Array, Index
from cost_models.schedule import PathCoefficients
from planner.search.rank_program import RankProgram
from planner.search.rows import Row, RowKind
from planner.search.scaling import Scale, linear_tables
from planner.search.segments import SegmentTable
from planner.search.variables import BoundaryVariables, SegmentVariables

# ---------------------------------------------------------------- segments, v = 1


def define_one_segment_per_rank(model: cp_model.CpModel, variables: SegmentVariables) -> None:
    """sum over options of y[i, a, b] = 1 for every rank."""
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
        model.add(variables.tail >= cp_model.LinearExpr.weighted_sum(chosen, costs.tolist()))


def define_rank_cuts(
    model: cp_model.CpModel, variables: SegmentVariables, program: RankProgram, scale: Scale, target: int
) -> None:
    """Rank bound of the chosen option (rank_program.py): sum over options of through[i, a, b] y <= target."""
    for rank, chosen in enumerate(variables.chosen):
        costs = scale.down(_of_options(program.through_s[rank], variables, rank))
        model.add(cp_model.LinearExpr.weighted_sum(chosen, costs.tolist()) <= target)


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
        costs += scale.down(seconds).tolist()
    sends = int(scale.down(np.float64(path.edge_count * send_s)))
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
    model: cp_model.CpModel, variables: BoundaryVariables, stages: list[int], bounds: list[int], ends: list[int]
) -> None:
    """Not these boundaries and splits of a rank's virtual stages together: they do not fit in memory."""
    involved: list[cp_model.IntVar] = []
    values: list[int] = []
    for stage in stages:
        involved += [variables.boundary[stage], variables.boundary[stage + 1]]
        values += [bounds[stage], bounds[stage + 1]]
        if variables.split:
            involved.append(variables.split[stage])
            values.append(ends[stage])
    distinct = dict(zip([variable.index for variable in involved], zip(involved, values, strict=True), strict=True))
    model.add_forbidden_assignments(
        [variable for variable, _ in distinct.values()], [tuple(value for _, value in distinct.values())]
    )


# Bytes are shares of the limit; a share of 1e-9 is far below what the cost model knows.
_SHARES = Scale(1e9)


def _row_expression(
    model: cp_model.CpModel, variables: BoundaryVariables, row: Row, scale: Scale
) -> cp_model.LinearExprT:
    """Whole-number lower bound on the row."""
    tables = row.boundary if variables.split else row.without_splits()
    groups = list(_same_width(variables.boundary, tables))
    if variables.split:
        groups += _same_width(variables.split, row.split)
    involved: list[cp_model.IntVar] = []
    factors: list[int] = []
    constant = int(scale.down(np.float64(row.constant)))
    for group, first, values in groups:
        linear = linear_tables(values, first, scale)
        constant += int(linear.constants.sum())
        involved += group
        factors += linear.slopes.tolist()
        for at, offset in np.argwhere(linear.terms).tolist():
            involved.append(variables.literal(model, group[at], int(first[at]) + offset))
            factors.append(int(linear.terms[at, offset]))
    return cp_model.LinearExpr.weighted_sum(involved, factors) + constant


def _same_width(
    variables: tuple[cp_model.IntVar, ...], tables: Array
) -> Iterator[tuple[list[cp_model.IntVar], Index, Array]]:
    """Variables with domains of one width, the first position of each, and the tables over their domains."""
    low = np.array([variable.proto.domain[0] for variable in variables])
    width = np.array([variable.proto.domain[1] for variable in variables]) - low + 1
    for wide in np.unique(width).tolist():
        members = np.flatnonzero(width == wide)
        columns = low[members, None] + np.arange(wide)[None, :]
        yield [variables[at] for at in members], low[members], tables[members[:, None], columns]
