"""Static per-rank operation lists: what every pipeline rank runs, in which order.

They depend on (schedule, p, v, m) only, never on durations: p ranks, v chunks per rank, m micro-batches.
Virtual stage g = chunk * p + rank.  All schedules of this module are one family: a rank runs `warm-up`
forwards, then alternates one forward and one backward, then drains its backwards.

    gpipe        warm-up m                         Huang et al. 2019, arXiv 1811.06965
    1f1b         warm-up p - 1 - i                 Narayanan et al. 2021, arXiv 2104.04473, section 2.2
    interleaved  warm-up 2 (p - 1 - i) + (v - 1) p Megatron-LM megatron/core/pipeline_parallel/schedules.py,
                                                   micro-batches in groups of p, chunks in order in a group
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cost_models.schedule.names import ScheduleName
from cost_models.schedule.rules import check_legal

IntArray = NDArray[np.int64]

# Interleaved warm-up and drain take less than two groups of p micro-batches each, and two are left to see the
# steady state twice; 1F1B likewise with p micro-batches each.
_INTERLEAVED_GROUPS = 5
_ONE_F_ONE_B_SPARE = 4


class Phase(IntEnum):
    """What an operation does to its micro-batch; the backward fuses input and weight gradient."""

    FORWARD = 0
    BACKWARD = 1


class Operation(NamedTuple):
    """One forward or backward of one micro-batch through one chunk of a rank."""

    phase: Phase
    micro_batch: int
    chunk: int


@dataclass(frozen=True, slots=True, eq=False)
class OperationTable:
    """The operation lists as arrays of shape (p, 2 m v), one row per rank in program order."""

    phase: IntArray
    micro_batch: IntArray
    chunk: IntArray


@lru_cache(maxsize=64)
def operations(schedule: ScheduleName, p: int, v: int, m: int) -> tuple[tuple[Operation, ...], ...]:
    """Operation list of every rank, in program order."""
    table = operation_table(schedule, p, v, m)
    phases = (Phase.FORWARD, Phase.BACKWARD)
    return tuple(
        tuple(Operation(phases[phase], number, chunk) for phase, number, chunk in zip(*row, strict=True))
        for row in zip(table.phase.tolist(), table.micro_batch.tolist(), table.chunk.tolist(), strict=True)
    )


@lru_cache(maxsize=32)
def operation_table(schedule: ScheduleName, p: int, v: int, m: int) -> OperationTable:
    """Operation lists as arrays of shape (p, 2 m v); raises when the point is illegal or not modelled."""
    check_legal(schedule, p, v, m)
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
    table.flags.writeable = False
    return OperationTable(table[0], table[1], table[2])


def representative_micro_batches(schedule: ScheduleName, p: int, m: int) -> int:
    """Micro-batches of the shortest lists that show all that the lists of m do; more repeat their middle.

    GPipe has no such middle: its backwards stand m places after its forwards.
    """
    if schedule is ScheduleName.ONE_F_ONE_B:
        return min(m, 2 * p + _ONE_F_ONE_B_SPARE)
    if schedule is ScheduleName.INTERLEAVED:
        return min(m, _INTERLEAVED_GROUPS * p)
    return m


def _warm_up(schedule: ScheduleName, p: int, v: int, total: int) -> IntArray:
    ranks_after = np.arange(p - 1, -1, -1)
    if schedule is ScheduleName.GPIPE:
        return np.full(p, total)
    if schedule is ScheduleName.ONE_F_ONE_B:
        return ranks_after
    return 2 * ranks_after + (v - 1) * p
