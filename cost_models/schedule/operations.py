"""Static per-rank operation lists: what every pipeline rank runs, in which order.

They depend on (schedule, p, v, m) only, never on durations: p ranks, v chunks per rank, m micro-batches.
`placement.stage_of` says which stage a chunk is.  Three schedules are one family: a rank runs `warm-up`
forwards, then alternates one forward and one backward, then drains its backwards.

    gpipe        warm-up m                         Huang et al. 2019, arXiv 1811.06965
    1f1b         warm-up p - 1 - i                 Narayanan et al. 2021, arXiv 2104.04473, section 2.2
    interleaved  warm-up 2 (p - 1 - i) + (v - 1) p Megatron-LM megatron/core/pipeline_parallel/schedules.py,
                                                   micro-batches in groups of p, chunks in order in a group

The others split their backward: see `zero_bubble` and `dual_pipe`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.schedule.dual_pipe import dualpipe_operations, dualpipe_v_operations
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.rank_list import Operation, Phase
from cost_models.schedule.rules import check_legal
from cost_models.schedule.zero_bubble import zb_h1_operations, zb_v_operations

IntArray = NDArray[np.int64]

NO_OPERATION: Final = -1

# What a list shows of its warm-up and drain grows with p; the rest is left to see the steady state twice.
_INTERLEAVED_GROUPS: Final = 5
_SPARE: Final = 4
_RAMPS: Final = {
    ScheduleName.ONE_F_ONE_B: 2,
    ScheduleName.ZB_H1: 3,
    ScheduleName.ZB_V: 6,
    ScheduleName.DUALPIPE_V: 6,
}

_BY_RANK: Final[dict[ScheduleName, Callable[[int, int, int], list[Operation]]]] = {
    ScheduleName.ZB_H1: zb_h1_operations,
    ScheduleName.ZB_V: zb_v_operations,
    ScheduleName.DUALPIPE: dualpipe_operations,
    ScheduleName.DUALPIPE_V: dualpipe_v_operations,
}


@dataclass(frozen=True, slots=True, eq=False)
class OperationTable:
    """The operation lists as arrays of shape (p, longest list), one row per rank in program order.

    Ranks with shorter lists (dualpipe splits more backwards on some ranks) end in NO_OPERATION.
    """

    phase: IntArray
    micro_batch: IntArray
    chunk: IntArray

    @property
    def exists(self) -> NDArray[np.bool_]:
        """Where the table holds an operation."""
        found: NDArray[np.bool_] = self.phase != NO_OPERATION
        return found

    def pairs(self, schedule: ScheduleName) -> NDArray[np.bool_]:
        """Where an operation belongs to a pair: a forward of one chunk and the backward after it, of the other.

        Only the dualpipe lists mean them to run side by side; first forwards and last backwards never are paired.
        """
        found = np.zeros(self.phase.shape, dtype=np.bool_)
        if schedule in (ScheduleName.DUALPIPE, ScheduleName.DUALPIPE_V):
            forward, after = self.phase[:, :-1] == Phase.FORWARD, self.phase[:, 1:] == Phase.BACKWARD
            both = forward & after & (self.chunk[:, :-1] != self.chunk[:, 1:])
            found[:, :-1] |= both
            found[:, 1:] |= both
        return found


@lru_cache(maxsize=64)
def operations(schedule: ScheduleName, p: int, v: int, m: int) -> tuple[tuple[Operation, ...], ...]:
    """Operation list of every rank, in program order."""
    table = operation_table(schedule, p, v, m)
    phases = tuple(Phase)
    return tuple(
        tuple(
            Operation(phases[phase], number, chunk)
            for phase, number, chunk in zip(*row, strict=True)
            if phase != NO_OPERATION
        )
        for row in zip(table.phase.tolist(), table.micro_batch.tolist(), table.chunk.tolist(), strict=True)
    )


@lru_cache(maxsize=32)
def operation_table(schedule: ScheduleName, p: int, v: int, m: int) -> OperationTable:
    """Operation lists as arrays; raises IllegalScheduleError when the point is illegal."""
    check_legal(schedule, p, v, m)
    table = _listed_table(schedule, p, m) if schedule in _BY_RANK else _family_table(schedule, p, v, m)
    table.flags.writeable = False
    return OperationTable(table[0], table[1], table[2])


def representative_micro_batches(schedule: ScheduleName, p: int, m: int) -> int:
    """Micro-batches of the shortest lists that show all that the lists of m do; more repeat their middle.

    GPipe has no such middle: its backwards stand m places after its forwards.
    """
    if schedule is ScheduleName.INTERLEAVED:
        return min(m, _INTERLEAVED_GROUPS * p)
    if schedule is ScheduleName.DUALPIPE:
        return 2 * representative_micro_batches(ScheduleName.DUALPIPE_V, p // 2, m // 2)
    if schedule in _RAMPS:
        return min(m, _RAMPS[schedule] * p + _SPARE)
    return m


@dataclass(frozen=True, slots=True, eq=False)
class PassCounts:
    """How often every chunk runs a step's passes, arrays of shape (p, v); those in pairs are among the others."""

    forwards: IntArray
    fused_backwards: IntArray
    split_backwards: IntArray
    paired_forwards: IntArray
    paired_backwards: IntArray


@lru_cache(maxsize=256)
def pass_counts(schedule: ScheduleName, p: int, v: int, m: int) -> PassCounts:
    """Passes of every chunk, counted without writing the lists of many micro-batches."""
    check_legal(schedule, p, v, m)
    forwards = np.full((p, v), m // 2 if schedule is ScheduleName.DUALPIPE else m)
    split, paired = np.zeros_like(forwards), np.zeros((2, p, v), dtype=np.int64)
    if schedule in (ScheduleName.ZB_H1, ScheduleName.ZB_V):
        split = forwards.copy()
        split[0, 0] = 0
    elif schedule.splits_backward:  # only warm-up and drain split: more micro-batches add whole backwards
        shown = representative_micro_batches(schedule, p, m)
        table = operation_table(schedule, p, v, shown)
        of_chunk = table.chunk[:, :, None] == np.arange(v)
        split = (of_chunk & (table.phase == Phase.WEIGHT_GRADIENT)[:, :, None]).sum(axis=1)
        more = (m - shown) // (2 if schedule is ScheduleName.DUALPIPE else 1)
        for place, phase in enumerate((Phase.FORWARD, Phase.BACKWARD)):
            is_paired = table.pairs(schedule) & (table.phase == phase)
            paired[place] = (of_chunk & is_paired[:, :, None]).sum(axis=1) + more
    return PassCounts(forwards, forwards - split, split, paired[0], paired[1])


def _listed_table(schedule: ScheduleName, p: int, m: int) -> IntArray:
    """Phase, micro-batch and chunk, shape (3, p, longest list)."""
    lists = [_BY_RANK[schedule](p, m, rank) for rank in range(p)]
    table = np.full((3, p, max(map(len, lists))), NO_OPERATION, dtype=np.int64)
    for rank, listed in enumerate(lists):
        table[:, rank, : len(listed)] = np.asarray(listed, dtype=np.int64).T
    return table


def _family_table(schedule: ScheduleName, p: int, v: int, m: int) -> IntArray:
    """Phase, micro-batch and chunk, shape (3, p, 2 m v)."""
    total = m * v
    number = np.arange(total)
    in_group = number % (p * v)
    micro_batch = number // (p * v) * p + in_group % p
    forward_chunk = in_group // p
    warm_up = np.minimum(_warm_up(schedule, p, v, total), total)[:, None]
    # Forward n stands n-th while warming up, then at every second place; backwards fill the gaps and the end.
    forward_at = np.where(number < warm_up, number, 2 * number - warm_up)
    backward_at = np.where(number < total - warm_up, warm_up + 2 * number + 1, total + number)
    table = np.empty((3, p, 2 * total), dtype=np.int64)
    rank = np.arange(p)[:, None]
    forwards = np.stack((np.full(total, Phase.FORWARD), micro_batch, forward_chunk))
    backwards = np.stack((np.full(total, Phase.BACKWARD), micro_batch, v - 1 - forward_chunk))
    table[:, rank, forward_at] = forwards[:, None]
    table[:, rank, backward_at] = backwards[:, None]
    return table


def _warm_up(schedule: ScheduleName, p: int, v: int, total: int) -> IntArray:
    ranks_after = np.arange(p - 1, -1, -1)
    if schedule is ScheduleName.GPIPE:
        return np.full(p, total)
    if schedule is ScheduleName.ONE_F_ONE_B:
        return ranks_after
    return 2 * ranks_after + (v - 1) * p
