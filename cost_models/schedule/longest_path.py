"""Longest paths of a schedule's graph: how `simulate` and `critical_path` run it.

Each time is a maximum of sums of durations (a max-plus linear function), so the step is monotone in every
duration.  With many micro-batches the repeated cycle of the graph maps its last `reach` ends to the next
ones.  When those equal the ones of c cycles before plus one number d, every later cycle equals that of c
cycles before plus d as well, because f(x + d) = f(x) + d, and the rest is added without running it.  Times
are whole multiples of a power of two small enough for exact sums, which makes that comparison a proof.
Instances that are not proved periodic run in full.
"""

from collections import deque
from functools import lru_cache
from itertools import pairwise

import numpy as np

from cost_models.schedule.durations import DurationUnits, FloatArray
from cost_models.schedule.graph import Column, Graph, Segment
from cost_models.schedule.operations import IntArray

# Least number of periods tried.  1F1B tries up to p micro-batches: with send times the slowest loop of its
# graph can go through all ranks and come back p micro-batches later.
_MIN_PERIODS = 4


def run_rows(fixed: Graph, units: DurationUnits, column: int, *, extend: bool) -> list[float]:
    """Ends of one instance in units by row, row 0 being the start; with `extend` only the tail's are kept."""
    slots, send = units.slots[:, column], units.send[:, column]
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


def run_batch(fixed: Graph, units: DurationUnits, *, extend: bool) -> FloatArray:
    """End of each rank's last operation in units, shape (p, B), level by level for all instances at once."""
    send = units.send
    rows = np.zeros((1, send.shape[1]))
    rows = _append_levels(rows, fixed.head, units.slots[fixed.head[Column.SLOT]], send)[-fixed.reach :]
    if fixed.repeats:
        rows = _run_cycles(fixed, units, rows, extend=extend)
        rows = _append_levels(rows, fixed.tail, units.slots[fixed.tail[Column.SLOT]], send)
    ends: FloatArray = rows[-fixed.last_offset]
    return ends


RowLists = tuple[list[int], list[int], list[float], list[float]]


def _row_lists(segment: Segment, slots: FloatArray, send: FloatArray) -> RowLists:
    """Places of both predecessors when a row is about to be appended, its duration, the delay of its data."""
    program, data = _distances(segment)
    delay = (send if len(send) == 1 else send[segment[Column.LINK]]) * segment[Column.CROSSES]
    return program, data, slots[segment[Column.SLOT]].tolist(), delay.tolist()


def _append_rows(rows: list[float], lists: RowLists) -> None:
    append = rows.append
    for program, data, duration, delay in zip(*lists, strict=True):
        ready = rows[program]
        arrived = rows[data] + delay
        append((arrived if arrived > ready else ready) + duration)


@lru_cache(maxsize=512)
def _distances(segment: Segment) -> tuple[list[int], list[int]]:
    return _negative(segment[Column.PROGRAM_OFFSET]), _negative(segment[Column.DATA_OFFSET])


def _negative(offsets: IntArray) -> list[int]:
    """Offsets as negative list positions; equal ones share one number object, as few differ."""
    different, which = np.unique(-offsets, return_inverse=True)
    numbers = different.tolist()
    return [numbers[number] for number in which.tolist()]


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
    for first, last, program, data, crosses, link in _level_plan(segment, kept):
        ready = np.take(rows, program, axis=0)
        arrived = np.take(rows, data, axis=0)
        if has_delay:
            arrived += crosses * (send if len(send) == 1 else send[link])
        np.maximum(ready, arrived, out=ready)
        np.add(ready, seconds[first:last], out=rows[kept + first : kept + last])
    return rows


@lru_cache(maxsize=512)
def _level_plan(
    segment: Segment, kept: int
) -> list[tuple[int, int, IntArray, IntArray, FloatArray, IntArray]]:
    """Of every level: local rows, places of both predecessors, 1 where data cross ranks (shape (n, 1)), the link."""
    place = np.arange(kept, kept + segment.size)
    program, data = place - segment[Column.PROGRAM_OFFSET], place - segment[Column.DATA_OFFSET]
    crosses = segment[Column.CROSSES][:, None].astype(np.float64)
    link = segment[Column.LINK]
    starts = pairwise(segment.level_starts)
    return [(a, b, program[a:b], data[a:b], crosses[a:b], link[a:b]) for a, b in starts]


def _run_cycles(fixed: Graph, units: DurationUnits, rows: FloatArray, *, extend: bool) -> FloatArray:
    """Last `reach` ends after all cycles, shape (reach, B); instances proved periodic leave the loop."""
    stride = _stride(fixed)
    columns = np.arange(units.send.shape[1])
    seconds, send = units.slots[fixed.cycle[Column.SLOT]], units.send
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
            columns, seconds, send = columns[~proved], seconds[:, ~proved], send[:, ~proved]
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
