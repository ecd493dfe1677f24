"""When every operation of a pipeline step runs: the longest paths of the schedule's fixed graph.

An operation starts when the operation before it on its rank has ended and its data has arrived:

    start = max(end of program predecessor, end of data predecessor + send_s if on another rank)
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.schedule.durations import (
    DurationUnits,
    FloatArray,
    PipelineDurations,
    Slot,
    in_units,
    one_instance,
    rank_busy_s,
)
from cost_models.schedule.gpipe import gpipe_rank_ends
from cost_models.schedule.graph import Column, Graph, graph
from cost_models.schedule.longest_path import run_batch, run_rows
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import IntArray, pass_counts
from cost_models.schedule.rank_list import Phase
from cost_models.schedule.rules import check_legal

# [Empirical] Up to this many instances, plain Python numbers are faster than numpy calls on whole levels.
# 4,000 random strategies of three models take 14 % less with 3 than with 12, one x86 core, 2026-12.
_LIST_BATCH = 3
# Instances run together, so that a batch of any size takes bounded memory (about 10 MB at p = 16).
_LEVEL_BATCH = 512


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Times of a step, with the axis B where the durations have it.

    Attributes:
        rank_end_s: end of every rank's last operation, shape (p,) or (p, B).
        step_s: the latest of them, shape () or (B,).
        rank_busy_s: seconds in which the rank computes, shape (p,) or (p, B).
    """

    rank_end_s: FloatArray
    step_s: FloatArray
    rank_busy_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OperationTimeline:
    """Start and end of every operation of one instance, in order of start; arrays of one shape (n,).

    `paired`: whether the operation is one of a forward and a backward that the schedule means to run side by side.
    """

    rank: IntArray
    phase: IntArray
    chunk: IntArray
    micro_batch: IntArray
    start_s: FloatArray
    end_s: FloatArray
    paired: NDArray[np.bool_]

    @property
    def joined(self) -> NDArray[np.bool_]:
        """Backwards whose time is inside the forward before them: pairs that are one piece of work."""
        inside: NDArray[np.bool_] = self.paired & (self.phase != Phase.FORWARD) & (self.start_s == self.end_s)
        return inside


def simulate(
    schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations, *, extend: bool = True
) -> Timeline:
    """Times of the step of every instance.

    `extend=False` runs every operation instead of adding proved cycles or using the closed form
    (GPipe); the result is the same number, see the tests.
    """
    check_legal(schedule, p, v, m)
    if schedule is ScheduleName.GPIPE and extend and durations.link_s is None:
        units = in_units(durations, p, v, 2 * (m + p - 1))
        ends = gpipe_rank_ends(m, units.slots.reshape(4, p, -1), units.send[0])
    else:
        fixed = graph(schedule, p, v, m)
        units = in_units(durations, p, v, fixed.level_count, split=schedule.splits_backward)
        few = units.send.shape[1] <= _LIST_BATCH
        ends = (_few_ends if few else _many_ends)(fixed, units, extend=extend)
    rank_end_s = np.ldexp(ends, units.exponent).reshape(p, *durations.forward_s.shape[2:])
    busy_s = rank_busy_s(pass_counts(schedule, p, v, m), durations)
    return Timeline(rank_end_s, np.asarray(rank_end_s.max(axis=0)), busy_s)


def simulate_operations(
    schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations
) -> OperationTimeline:
    """Start and end of every operation of one instance (durations without the axis B), for traces."""
    fixed = graph(schedule, p, v, m)
    units = in_units(one_instance(durations), p, v, fixed.level_count, split=schedule.splits_backward)
    parts = fixed.parts()
    columns = np.concatenate([part.columns for part, _ in parts], axis=1)
    columns[Column.MICRO_BATCH] += np.repeat([shift for _, shift in parts], [part.size for part, _ in parts])
    end = np.array(run_rows(fixed, units, 0, extend=False)[1:])
    start = end - units.slots[columns[Column.SLOT], 0]  # exact: both are whole units
    order = np.argsort(start, kind="stable")
    columns = columns[:, order]
    return OperationTimeline(
        rank=columns[Column.RANK],
        phase=columns[Column.PHASE],
        chunk=columns[Column.CHUNK],
        micro_batch=columns[Column.MICRO_BATCH],
        start_s=np.ldexp(start[order], units.exponent[0]),
        end_s=np.ldexp(end[order], units.exponent[0]),
        paired=columns[Column.SLOT] // (p * v) >= Slot.PAIRED_FORWARD,
    )


def _few_ends(fixed: Graph, units: DurationUnits, *, extend: bool) -> FloatArray:
    """End of each rank's last operation in units, shape (p, B), instance by instance."""
    back = fixed.last_offset.tolist()
    columns = [run_rows(fixed, units, column, extend=extend) for column in range(units.send.shape[1])]
    return np.array([[rows[-offset] for rows in columns] for offset in back])


def _many_ends(fixed: Graph, units: DurationUnits, *, extend: bool) -> FloatArray:
    """Like `_few_ends`, a block of instances at once."""
    firsts = range(0, units.send.shape[1], _LEVEL_BATCH)
    blocks = [units.instances(first, first + _LEVEL_BATCH) for first in firsts]
    return np.concatenate([run_batch(fixed, block, extend=extend) for block in blocks], axis=1)
