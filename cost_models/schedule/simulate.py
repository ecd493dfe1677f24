"""When every operation of a pipeline step runs: the longest paths of the schedule's fixed graph.

An operation starts when the operation before it on its rank has ended and its data has arrived:

    start = max(end of program predecessor, end of data predecessor + send_s if on another rank)
"""

from dataclasses import dataclass

import numpy as np

from cost_models.schedule.durations import FloatArray, PipelineDurations
from cost_models.schedule.longest_path import run_batch, run_rows, scale, scale_one
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import IntArray

# [Empirical] Up to this many instances, plain Python numbers are faster than numpy calls on whole levels.
_LIST_BATCH = 6


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Times of a step: of every rank shape (p,) or (p, B), of the step () or (B,), like the durations.

    rank_end_s is when a rank's last operation ends, step_s the latest of them, rank_busy_s the seconds in which
    a rank computes.
    """

    rank_end_s: FloatArray
    step_s: FloatArray
    rank_busy_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OperationTimeline:
    """Start and end of every operation of one instance; arrays with one entry per operation, in order of time."""

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
    return Timeline(rank_end_s, np.asarray(rank_end_s.max(axis=0)), _rank_busy_s(m, durations))


def simulate_operations(
    schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations
) -> OperationTimeline:
    """Start and end of every operation of one instance (durations without the axis B), for traces."""
    scaled = scale_one(schedule, p, v, m, durations)
    parts = scaled.graph.parts()
    slot = np.concatenate([part.slot for part, _ in parts])
    end = np.array(run_rows(scaled, 0, extend=False)[1:])
    start = end - scaled.slots[slot, 0]  # exact: both are whole units
    order = np.argsort(start, kind="stable")
    micro_batch = np.concatenate([part.micro_batch + shift for part, shift in parts])
    rank, phase, chunk = (
        np.concatenate([getattr(part, name) for part, _ in parts])[order] for name in ("rank", "phase", "chunk")
    )
    start_s, end_s = (np.ldexp(time, scaled.exponent[0])[order] for time in (start, end))
    return OperationTimeline(rank, phase, chunk, micro_batch[order], start_s, end_s)


def _rank_busy_s(m: int, durations: PipelineDurations) -> FloatArray:
    busy_s = m * (durations.forward_s + durations.backward_s)
    for extra_s in (durations.first_forward_extra_s, durations.last_backward_extra_s):
        if extra_s is not None:
            busy_s = busy_s + extra_s
    total_s: FloatArray = busy_s.sum(axis=1)
    return total_s
