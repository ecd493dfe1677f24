"""The fixed graph of a schedule: operations in topological order, each with its predecessors.

An operation has at most two predecessors: the one before it in its rank's list, and the one that makes its
data: F(micro-batch, g) waits for F(micro-batch, g-1), B or I(micro-batch, g) for B or I(micro-batch, g+1),
where g is the stage of `placement.stage_of`.  The first backward of a micro-batch waits for its own forward,
and a weight gradient for its input gradient, which their rank's list already guarantees.  Operations are
sorted by level (longest chain of operations before them), and predecessors are stored as distances in that
order, which makes the middle of every schedule but GPipe the same block over and over, whatever m is:

    rows = [head] + [cycle] * repeats + [tail]

The block is found, and checked entry by entry, in the graph of a small m; larger m only repeat it more often.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

import numpy as np

from cost_models.schedule.durations import Slot
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import (
    NO_OPERATION,
    IntArray,
    operation_table,
    representative_micro_batches,
)
from cost_models.schedule.placement import num_stages, stage_table
from cost_models.schedule.rank_list import Phase
from cost_models.schedule.rules import check_legal

# Slot of a phase: plain, special, and one of a pair.
_SLOT_OF = np.array(
    [
        [Slot.FORWARD, Slot.BACKWARD, Slot.INPUT_GRADIENT, Slot.WEIGHT_GRADIENT],
        [Slot.FIRST_FORWARD, Slot.LAST_BACKWARD, Slot.INPUT_GRADIENT, Slot.LAST_WEIGHT_GRADIENT],
        [Slot.PAIRED_FORWARD, Slot.PAIRED_BACKWARD, Slot.INPUT_GRADIENT, Slot.WEIGHT_GRADIENT],
    ]
)
_SPECIAL, _PAIRED = 1, 2

# Levels and micro-batches (per rank) after which the middle of a schedule's lists repeats.
_OPERATIONS_PER_CYCLE = {
    ScheduleName.ZB_H1: 3,
    ScheduleName.ZB_V: 6,
    ScheduleName.DUALPIPE_V: 4,
    ScheduleName.DUALPIPE: 4,
}


class Column(IntEnum):
    """What the columns of a segment hold, see `Segment`."""

    RANK = 0
    PHASE = 1
    CHUNK = 2
    MICRO_BATCH = 3
    SLOT = 4
    PROGRAM_OFFSET = 5
    DATA_OFFSET = 6
    CROSSES = 7
    LINK = 8


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Consecutive rows of the graph.

    Attributes:
        columns: shape (9, rows), by `Column`: what the operation is; its place in `durations.by_slot`;
            distances back to the operation before it on its rank and to the one that makes its data (equal
            when there is only one predecessor); 1 where the data comes from another rank, and the link it takes
            (i between ranks i and i + 1, the last one between the last rank and the first).
        level_starts: local rows at which the levels start, and the number of rows at the end.
    """

    columns: IntArray
    level_starts: tuple[int, ...]

    def __getitem__(self, column: Column) -> IntArray:
        values: IntArray = self.columns[column]
        return values

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.columns[Column.RANK])

    @property
    def reach(self) -> int:
        """How many rows before its own the segment refers to."""
        offsets = self.columns[[Column.PROGRAM_OFFSET, Column.DATA_OFFSET]]
        return int((offsets - np.arange(self.size)).max())

    def part(self, first: int, last: int) -> "Segment":
        """Rows from first up to last, both of them at the start of a level."""
        levels = tuple(start - first for start in self.level_starts if first <= start <= last)
        return Segment(self.columns[:, first:last], levels)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The graph of one point (schedule, p, v, m); row 0, before the head, is the start of the step at time 0.

    Attributes:
        head: rows before the cycles; all of the graph when there are no cycles.
        cycle: the repeated block, with the micro-batches of its first time.
        tail: rows after the cycles, with the micro-batches that follow `tail_after` cycles.
        repeats: how often the cycle runs.
        group: micro-batches per cycle.
        reach: how many rows before their own start a cycle and the tail refer to.
        last_offset: distance from the end of the rows to each rank's last operation, shape (p,).
        level_count: largest number of operations on a path.
    """

    head: Segment
    cycle: Segment
    tail: Segment
    repeats: int
    tail_after: int
    group: int
    reach: int
    last_offset: IntArray
    level_count: int

    def parts(self) -> list[tuple[Segment, int]]:
        """All segments in order, each with the number to add to its micro-batches."""
        cycles = [(self.cycle, number * self.group) for number in range(self.repeats)]
        return [(self.head, 0), *cycles, (self.tail, (self.repeats - self.tail_after) * self.group)]


def operation_slots(schedule: ScheduleName, p: int, v: int, m: int) -> IntArray:
    """Place in `durations.by_slot` of every operation's seconds, shape (p, longest list) in program order.

    Special are the first forward and the last backward (weight gradient, where it is apart) of every chunk;
    places past the end of a rank's list hold NO_OPERATION.
    """
    table = operation_table(schedule, p, v, m)
    directions = 2 if schedule is ScheduleName.DUALPIPE else 1
    first = table.chunk if directions == 2 else 0  # chunk 1 of dualpipe takes the odd micro-batches
    is_first, is_last = table.micro_batch == first, table.micro_batch == m - directions + first
    is_special = np.where(table.phase == Phase.FORWARD, is_first, is_last)
    row = np.where(is_special, _SPECIAL, np.where(table.pairs(schedule), _PAIRED, 0))
    kind = _SLOT_OF[row, table.phase]
    slots = kind * (p * v) + np.arange(p)[:, None] * v + table.chunk
    listed: IntArray = np.where(table.exists, slots, NO_OPERATION)
    return listed


@lru_cache(maxsize=1024)
def graph(schedule: ScheduleName, p: int, v: int, m: int) -> Graph:
    """The graph of a legal point; points with many micro-batches share the arrays of a small one."""
    check_legal(schedule, p, v, m)
    small_m = representative_micro_batches(schedule, p, m)
    if m == small_m:
        return whole_graph(schedule, p, v, m)
    small = _cut(schedule, p, v, small_m)
    if small.repeats == 0:
        return whole_graph(schedule, p, v, m)
    more = (m - small_m) // small.group
    levels = small.level_count + more * (len(small.cycle.level_starts) - 1)
    return replace(small, repeats=small.repeats + more, level_count=levels)


@lru_cache(maxsize=128)
def _cut(schedule: ScheduleName, p: int, v: int, m: int) -> Graph:
    """The graph with its middle cut into cycles, or uncut when no cycle is seen twice."""
    whole = whole_graph(schedule, p, v, m)
    rows, starts = whole.head, np.asarray(whole.head.level_starts)
    group, period = _cycle(schedule, p, v)
    first_level, seen = _longest_repetition(rows, period, group)
    cycles = seen // period + 1
    if seen < period:
        return whole
    begin, second, end = starts[[first_level, first_level + period, first_level + cycles * period]].tolist()
    cycle, tail = rows.part(begin, second), rows.part(end, rows.size)
    reach = max(cycle.reach, tail.reach)
    if reach > begin + 1:
        return whole
    return replace(
        whole,
        head=rows.part(0, begin),
        cycle=cycle,
        tail=tail,
        repeats=cycles,
        tail_after=cycles,
        group=group,
        reach=reach,
    )


def _cycle(schedule: ScheduleName, p: int, v: int) -> tuple[int, int]:
    """Micro-batches and levels after which the middle repeats: every rank runs one operation per level."""
    if schedule is ScheduleName.INTERLEAVED:
        return p, 2 * v * p
    return (2 if schedule is ScheduleName.DUALPIPE else 1), _OPERATIONS_PER_CYCLE.get(schedule, 2)


def _longest_repetition(rows: Segment, period: int, group: int) -> tuple[int, int]:
    """First level and length of the longest run of levels that return `period` levels later, next group."""
    step = np.zeros((len(Column), 1), dtype=np.int64)
    step[Column.MICRO_BATCH] = group
    starts = rows.level_starts
    best = (0, 0)
    run = 0
    for level in range(len(starts) - 1 - period):
        here = rows.columns[:, starts[level] : starts[level + 1]]
        later = rows.columns[:, starts[level + period] : starts[level + period + 1]]
        run = run + 1 if np.array_equal(here + step, later) else 0
        if run > best[1]:
            best = (level - run + 1, run)
    return best


@lru_cache(maxsize=64)
def whole_graph(schedule: ScheduleName, p: int, v: int, m: int) -> Graph:
    """The graph as one segment, straight from the operation lists."""
    table = operation_table(schedule, p, v, m)
    exists = table.exists.ravel()
    bounds = np.concatenate(([0], np.cumsum(table.exists.sum(axis=1))))
    total = int(bounds[-1])
    rank = np.repeat(np.arange(p), np.diff(bounds))
    phase, chunk, micro_batch = (
        part.ravel()[exists] for part in (table.phase, table.chunk, table.micro_batch)
    )
    stage = stage_table(schedule, p, v)[rank, chunk]
    data = _data_predecessors(phase, stage, micro_batch, (num_stages(schedule, p, v), m))
    level = _levels(data, bounds.tolist())
    order = np.lexsort((rank, level))
    row = np.empty(total, dtype=np.int64)
    row[order] = np.arange(1, total + 1)
    program_row = np.concatenate(([0], row[:-1]))
    program_row[bounds[:-1]] = 0
    data_row = np.where(data >= 0, row[data], program_row)
    slot = operation_slots(schedule, p, v, m).ravel()[exists]
    crosses = (data >= 0) & (rank[data] != rank)
    source = np.where(crosses, rank[data], rank)
    low, high = np.minimum(source, rank), np.maximum(source, rank)
    link = np.where(crosses, np.where(high - low == 1, low, p - 1), 0)
    columns = (rank, phase, chunk, micro_batch, slot, row - program_row, row - data_row, crosses, link)
    level_starts = np.searchsorted(level[order], np.arange(level.max() + 2))
    head = Segment(np.stack(columns)[:, order], tuple(level_starts.tolist()))
    none = head.part(0, 0)
    return Graph(
        head=head,
        cycle=none,
        tail=none,
        repeats=0,
        tail_after=0,
        group=1,
        reach=total + 1,
        last_offset=total + 1 - row[bounds[1:] - 1],
        level_count=int(level.max()) + 1,
    )


def _data_predecessors(
    phase: IntArray, stage: IntArray, micro_batch: IntArray, shape: tuple[int, int]
) -> IntArray:
    """Number of the operation that makes each operation's data, -1 without one; shape (stages, m)."""
    place = np.empty((2, *shape), dtype=np.int64)
    passes_on = np.flatnonzero(phase != Phase.WEIGHT_GRADIENT)
    is_forward = phase == Phase.FORWARD
    direction = np.where(is_forward, 0, 1)
    place[direction[passes_on], stage[passes_on], micro_batch[passes_on]] = passes_on
    source = np.where(is_forward, stage - 1, stage + 1)
    exists = (source >= 0) & (source < shape[0]) & (phase != Phase.WEIGHT_GRADIENT)
    return np.where(exists, place[direction, np.clip(source, 0, shape[0] - 1), micro_batch], -1)


def _levels(data: IntArray, bounds: list[int]) -> IntArray:
    """Longest chain of operations before each one, following every rank's list as far as its data goes."""
    waits_for = data.tolist()
    level = [-1] * len(waits_for)
    next_of_rank = bounds[:-1]
    progress = True
    while progress:
        progress = False
        for rank, start in enumerate(bounds[:-1]):
            place, end = next_of_rank[rank], bounds[rank + 1]
            before = level[place - 1] if place > start else -1
            while place < end and (waits_for[place] < 0 or level[waits_for[place]] >= 0):
                ready = level[waits_for[place]] if waits_for[place] >= 0 else -1
                before = max(before, ready) + 1
                level[place] = before
                place += 1
            progress |= place > next_of_rank[rank]
            next_of_rank[rank] = place
    if min(level) < 0:
        msg = f"operation lists of {len(bounds) - 1} ranks wait for each other; correct their order"
        raise RuntimeError(msg)
    return np.asarray(level)
