"""What every rank of a pipeline does in a step: its operation list, with sends and receives put between.

Messages stand in the order in which they would be handed over if all chunks were alike (a forward 1 second, a backward
2, each of its halves 1).  Every rank takes its actions from one common sequence in which a send is followed at once by
its receive, so that any two ranks name the messages between them in the same order and no rank ever waits for one that
waits for it, whatever the real durations are.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from cost_models.schedule import (
    Operation,
    OperationTimeline,
    Phase,
    PipelineDurations,
    ScheduleName,
    num_stages,
    rank_of_stage,
    simulate_operations,
    stage_table,
)


class Cargo(StrEnum):
    """What a message carries: a stage's output to the next one, or the gradient of its input to the one before."""

    OUTPUT = "output"
    GRADIENT = "gradient"


class Run(NamedTuple):
    """Run an operation on the stage of its chunk."""

    operation: Operation
    stage: int


class Send(NamedTuple):
    """Send what a stage made to the pipeline rank `peer`."""

    cargo: Cargo
    stage: int
    micro_batch: int
    peer: int


class Receive(NamedTuple):
    """Start to receive, from the pipeline rank `peer`, what a stage needs."""

    cargo: Cargo
    stage: int
    micro_batch: int
    peer: int


Action = Run | Send | Receive

_FORWARD_S: Final = 1.0
_HALF_BACKWARD_S: Final = 1.0


@lru_cache(maxsize=16)
def rank_actions(schedule: ScheduleName, p: int, v: int, m: int) -> tuple[tuple[Action, ...], ...]:
    """Actions of every pipeline rank, in order; its `Run`s are its operation list."""
    timeline = simulate_operations(schedule, p, v, m, _even_durations(p, v))
    stages, last = stage_table(schedule, p, v), num_stages(schedule, p, v) - 1
    found: list[list[Action]] = [[] for _ in range(p)]
    for rank, operation, ended in _in_order(timeline):
        stage = int(stages[rank, operation.chunk])
        if not ended:
            found[rank].append(Run(operation, stage))
            continue
        forward = operation.phase is Phase.FORWARD
        target = stage + 1 if forward else stage - 1
        if operation.phase is Phase.WEIGHT_GRADIENT or not 0 <= target <= last:
            continue
        peer = rank_of_stage(schedule, p, target, operation.chunk)
        if peer != rank:
            cargo = Cargo.OUTPUT if forward else Cargo.GRADIENT
            found[rank].append(Send(cargo, stage, operation.micro_batch, peer))
            found[peer].append(Receive(cargo, target, operation.micro_batch, rank))
    return tuple(tuple(actions) for actions in found)


def _even_durations(p: int, v: int) -> PipelineDurations:
    halves = np.full((p, v), _HALF_BACKWARD_S)
    forward = np.full((p, v), _FORWARD_S)
    return PipelineDurations(
        forward, 2 * _HALF_BACKWARD_S * forward, input_gradient_s=halves, weight_gradient_s=halves
    )


def _in_order(timeline: OperationTimeline) -> Iterator[tuple[int, Operation, bool]]:
    """Every operation twice, at its start and (True) at its end; ends come first where times are equal."""
    columns = (timeline.rank, timeline.phase, timeline.micro_batch, timeline.chunk)
    rows = [column.tolist() for column in columns]
    times = np.concatenate((timeline.start_s, timeline.end_s))
    is_start = np.repeat([1, 0], len(timeline.rank))
    for place in np.lexsort((is_start, times)).tolist():
        ended, number = divmod(place, len(timeline.rank))
        rank, phase, micro_batch, chunk = (row[number] for row in rows)
        yield rank, Operation(Phase(phase), micro_batch, chunk), bool(ended)
