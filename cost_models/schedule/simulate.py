"""When every operation of a pipeline step runs: the longest paths of the schedule's fixed graph.

An operation starts when the operation before it on its rank has ended and its data has arrived:

    start = max(end of program predecessor, end of data predecessor + send_s if on another rank)
"""

from dataclasses import dataclass

import numpy as np

from cost_models.schedule.durations import FloatArray, PipelineDurations, rank_busy_s
from cost_models.schedule.graph import Column
from cost_models.schedule.longest_path import run_batch, run_rows, scale, scale_one
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import IntArray

# [Empirical] Up to this many instances, plain Python numbers are faster than numpy calls on whole levels.
_LIST_BATCH = 6


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
    """Start and end of every operation of one instance, in order of start; arrays of shape (2 p v m,)."""

    rank: IntArray
    phase: IntArray
    chunk: IntArray
    micro_batch: IntArray
    start_s: FloatArray
    end_s: FloatArray


def simulate(
    schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations, *, extend: bool = True
) -> Timeline:
    """Times of the step of every instance; `extend=False` runs every cycle instead of adding proved ones."""
    scaled = scale(schedule, p, v, m, durations)
    if scaled.send.size <= _LIST_BATCH:
        ends = np.empty((p, scaled.send.size))
        for column in range(scaled.send.size):
            rows = run_rows(scaled, column, extend=extend)
            ends[:, column] = [rows[-offset] for offset in scaled.graph.last_offset.tolist()]
    else:
        ends = run_batch(scaled, extend=extend)
    rank_end_s = np.ldexp(ends, scaled.exponent).reshape(p, *durations.forward_s.shape[2:])
    return Timeline(rank_end_s, np.asarray(rank_end_s.max(axis=0)), rank_busy_s(m, durations))


def simulate_operations(
    schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations
) -> OperationTimeline:
    """Start and end of every operation of one instance (durations without the axis B), for traces."""
    scaled = scale_one(schedule, p, v, m, durations)
    parts = scaled.graph.parts()
    columns = np.concatenate([part.columns for part, _ in parts], axis=1)
    columns[Column.MICRO_BATCH] += np.repeat([shift for _, shift in parts], [part.size for part, _ in parts])
    end = np.array(run_rows(scaled, 0, extend=False)[1:])
    start = end - scaled.slots[columns[Column.SLOT], 0]  # exact: both are whole units
    order = np.argsort(start, kind="stable")
    columns = columns[:, order]
    return OperationTimeline(
        rank=columns[Column.RANK],
        phase=columns[Column.PHASE],
        chunk=columns[Column.CHUNK],
        micro_batch=columns[Column.MICRO_BATCH],
        start_s=np.ldexp(start[order], scaled.exponent[0]),
        end_s=np.ldexp(end[order], scaled.exponent[0]),
    )
