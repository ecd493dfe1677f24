"""Longest paths of a schedule's graph: how `simulate` and `critical_path` run it.

Each time is a maximum of sums of durations (a max-plus linear function), so the step is monotone in every
duration.  With many micro-batches the repeated cycle of the graph maps its last `reach` ends to the next
ones.  When those equal the ones of c cycles before plus one number d, every later cycle equals that of c
cycles before plus d as well, because f(x + d) = f(x) + d, and the rest is added without running it.  Times
are whole multiples of a power of two small enough for exact sums, which makes that comparison a proof.
Instances that are not proved periodic run in full.
"""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cost_models.schedule.durations import FloatArray, PipelineDurations, by_slot, quantum_exponent
from cost_models.schedule.graph import Column, Graph, Segment, graph
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import IntArray

# Least number of periods tried.  1F1B tries up to p micro-batches: with send times the slowest loop of its
# graph can go through all ranks and come back p micro-batches later.
_MIN_PERIODS = 4


@dataclass(frozen=True, slots=True, eq=False)
class ScaledGraph:
    """A graph with durations in units of 2**exponent seconds: slots (4 p v, B), send and exponent (B,)."""

    graph: Graph
    slots: FloatArray
    send: FloatArray
    exponent: NDArray[np.int32]


def scale(schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations) -> ScaledGraph:
    """The graph of a point with the rounded durations of every instance; raises when shapes do not match."""
    if durations.forward_s.shape[:2] != (p, v):
        shape = durations.forward_s.shape
        msg = f"durations have shape {shape}, pp={p} and vpp={v}; use shape ({p}, {v}) or ({p}, {v}, B)"
        raise ValueError(msg)
    fixed = graph(schedule, p, v, m)
    slot_s = by_slot(durations)
    send_s = np.broadcast_to(np.asarray(durations.send_s, dtype=np.float64), slot_s.shape[1:])
    exponent = quantum_exponent(slot_s, send_s, fixed.level_count)
    slots, send = (np.rint(np.ldexp(seconds, -exponent)) for seconds in (slot_s, send_s))
    return ScaledGraph(fixed, slots, send, exponent)


def scale_one(schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations) -> ScaledGraph:
    """Like `scale`, for exactly one instance without the axis B."""
    if durations.is_batched:
        msg = f"durations hold {durations.forward_s.shape[2]} instances; give one, of shape ({p}, {v})"
        raise ValueError(msg)
    return scale(schedule, p, v, m, durations)


def run_rows(scaled: ScaledGraph, column: int, *, extend: bool) -> list[float]:
    """Ends of one instance in units by row, row 0 being the start; with `extend` only the tail's are kept."""
    fixed, slots, send = scaled.graph, scaled.slots[:, column], float(scaled.send[column])
    rows = [0.0]
    _append_rows(rows, _row_lists(fixed.head, slots, send))
    stride = _stride(fixed)
    cycle = _row_lists(fixed.cycle, slots, send)
    for done in range(1, fixed.repeats + 1):
        _append_rows(rows, cycle)
        if not extend or done % stride:
            continue
        if period := _proved_period(rows, fixed, done):
            rows = _extended(rows, fixed, period, fixed.repeats - done)
            break
    _append_rows(rows, _row_lists(fixed.tail, slots, send))
    return rows


def run_batch(scaled: ScaledGraph, *, extend: bool) -> FloatArray:
    """End of each rank's last operation in units, shape (p, B), level by level for all instances at once."""
    fixed, send = scaled.graph, scaled.send
    rows = np.zeros((1, send.size))
    rows = _append_levels(rows, fixed.head, scaled.slots[fixed.head[Column.SLOT]], send)[-fixed.reach :]
    if fixed.repeats:
        rows = _run_cycles(scaled, rows, extend=extend)
        rows = _append_levels(rows, fixed.tail, scaled.slots[fixed.tail[Column.SLOT]], send)
    ends: FloatArray = rows[-fixed.last_offset]
    return ends


RowLists = tuple[list[int], list[int], list[float], list[float]]


def _row_lists(segment: Segment, slots: FloatArray, send: float) -> RowLists:
    """Places of both predecessors when a row is about to be appended, its duration, the delay of its data."""
    program, data = _distances(segment)
    return program, data, slots[segment[Column.SLOT]].tolist(), (send * segment[Column.CROSSES]).tolist()


def _append_rows(rows: list[float], lists: RowLists) -> None:
    append = rows.append
    for program, data, duration, delay in zip(*lists, strict=True):
        ready = rows[program]
        arrived = rows[data] + delay
        append((arrived if arrived > ready else ready) + duration)


@lru_cache(maxsize=2048)
def _distances(segment: Segment) -> tuple[list[int], list[int]]:
    return (-segment[Column.PROGRAM_OFFSET]).tolist(), (-segment[Column.DATA_OFFSET]).tolist()


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _stride(fixed: Graph) -> int:
    """Cycles between two looks for a period: about p micro-batches."""
    return max(1, len(fixed.last_offset) // fixed.group)


def _proved_period(rows: list[float], fixed: Graph, done: int) -> int:
    """Cycles c after which the last `reach` ends have all advanced by one number; 0 when there is none."""
    reach = fixed.reach
    for period in range(1, min(done, max(_stride(fixed), _MIN_PERIODS)) + 1):
        back = period * fixed.cycle.size
        advance = rows[-1] - rows[-1 - back]
        if rows[-reach] - rows[-reach - back] != advance:
            continue
        both = zip(rows[-reach:], rows[-reach - back : -back], strict=True)
        if all(now - before == advance for now, before in both):
            return period
    return 0


def _extended(rows: list[float], fixed: Graph, period: int, remaining: int) -> list[float]:
    """Last `reach` ends after `remaining` more cycles, from the rows of the last period."""
    size = fixed.cycle.size
    advance = rows[-1] - rows[-1 - period * size]
    # Go back to the cycle of the last period from which a whole number of periods leads to the end.
    earlier = -remaining % period
    last = len(rows) - earlier * size
    shift = (remaining + earlier) // period * advance
    return [end + shift for end in rows[last - fixed.reach : last]]


def _append_levels(before: FloatArray, segment: Segment, seconds: FloatArray, send: FloatArray) -> FloatArray:
    """Rows `before` (r, B) followed by the ends of the segment's rows (n, B)."""
    kept = len(before)
    rows = np.empty((kept + segment.size, before.shape[1]))
    rows[:kept] = before
    has_delay = bool(send.any())
    for first, last, program, data, crosses in _level_plan(segment, kept):
        ready = np.take(rows, program, axis=0)
        arrived = np.take(rows, data, axis=0)
        if has_delay:
            arrived += crosses * send
        np.maximum(ready, arrived, out=ready)
        np.add(ready, seconds[first:last], out=rows[kept + first : kept + last])
    return rows


@lru_cache(maxsize=2048)
def _level_plan(segment: Segment, kept: int) -> list[tuple[int, int, IntArray, IntArray, FloatArray]]:
    """Of every level: local rows, places of both predecessors, 1 where data cross ranks (shape (n, 1))."""
    place = np.arange(kept, kept + segment.size)
    program, data = place - segment[Column.PROGRAM_OFFSET], place - segment[Column.DATA_OFFSET]
    crosses = segment[Column.CROSSES][:, None].astype(np.float64)
    return [(a, b, program[a:b], data[a:b], crosses[a:b]) for a, b in pairwise(segment.level_starts)]


def _run_cycles(scaled: ScaledGraph, rows: FloatArray, *, extend: bool) -> FloatArray:
    """Last `reach` ends after all cycles, shape (reach, B); instances proved periodic leave the loop."""
    fixed = scaled.graph
    stride = _stride(fixed)
    columns = np.arange(scaled.send.size)
    seconds, send = scaled.slots[fixed.cycle[Column.SLOT]], scaled.send
    final = np.empty_like(rows)
    history = deque([rows], maxlen=max(stride, _MIN_PERIODS) + 1)
    for done in range(1, fixed.repeats + 1):
        history.append(_append_levels(history[-1], fixed.cycle, seconds, send)[-fixed.reach :].copy())
        # Looks happen at 1, 2, 4, ... strides: dropping columns copies the rest.
        if not extend or done % stride or not _is_power_of_two(done // stride):
            continue
        period = _proved_periods(history)
        proved = period > 0
        if proved.any():
            final[:, columns[proved]] = _extended_columns(history, period, fixed.repeats - done)
            columns, seconds, send = columns[~proved], seconds[:, ~proved], send[~proved]
            history = deque((ends[:, ~proved] for ends in history), maxlen=history.maxlen)
        if not columns.size:
            return final
    final[:, columns] = history[-1]
    return final


def _proved_periods(history: deque[FloatArray]) -> IntArray:
    """Of every column, the cycles c after which all ends have advanced by one number; 0 without one."""
    now = history[-1]
    period = np.zeros(now.shape[1], dtype=np.int64)
    for cycles in range(1, len(history)):
        before = history[-1 - cycles]
        maybe = np.flatnonzero((period == 0) & (now[-1] - before[-1] == now[0] - before[0]))
        if maybe.size:
            advance = now[:, maybe] - before[:, maybe]
            period[maybe[(advance == advance[0]).all(axis=0)]] = cycles
    return period


def _extended_columns(history: deque[FloatArray], period: IntArray, remaining: int) -> FloatArray:
    """Last ends after `remaining` more cycles, of the columns with a period."""
    columns = np.flatnonzero(period)
    extended = np.empty((len(history[-1]), columns.size))
    for place, column in enumerate(columns.tolist()):
        cycles = int(period[column])
        earlier = -remaining % cycles
        advance = history[-1][0, column] - history[-1 - cycles][0, column]
        extended[:, place] = history[-1 - earlier][:, column] + (remaining + earlier) // cycles * advance
    return extended
