"""How long ranks wait for each other: long while they start, short within a step."""

from datetime import timedelta
from typing import Final

import torch.distributed as dist
from torch.distributed import distributed_c10d

from planner.evaluation import evaluate
from planner.executor.request import RunOrder

START_S: Final = 300.0
"""Ranks may be so far apart when they start: many processes load torch at once."""
SHORT_S: Final = 60.0
PATIENCE_STEPS: Final = 20


def start_timeout_s(order: RunOrder) -> float:
    """How long ranks may wait for each other until the first step."""
    return max(START_S, step_timeout_s(order))


def step_timeout_s(order: RunOrder) -> float:
    """How long ranks may wait for each other within a step."""
    if order.options.timeout_s is not None:
        return order.options.timeout_s
    return max(SHORT_S, PATIENCE_STEPS * evaluate(order.situation, order.strategy).step_s)


def set_timeouts(seconds: float) -> None:
    """Let waits in every group of this process end after so long; a mesh's groups have half an hour otherwise."""
    for group in list(distributed_c10d._world.pg_map):
        if dist.get_rank(group) >= 0:
            distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)
