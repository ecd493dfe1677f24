"""Ranks wait for each other a short while in a step, whatever a mesh's groups would do by themselves."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from planner.executor.timeouts import SHORT_S, set_timeouts, step_timeout_s
from tests.planner.executor.orders import tiny_order


def wait_in_vain(rank: int, world: int) -> float:
    """Seconds that rank 0 waits in a group of its own for a rank that does not come."""
    group = dist.new_group()
    set_timeouts(1.0)
    start = time.monotonic()
    if rank == 0:
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(1), group=group)
    seconds = time.monotonic() - start
    time.sleep(3.0 if rank else 0.0)
    set_timeouts(60.0)
    return seconds


def test_a_rank_that_does_not_come_is_not_waited_for(run_ranks: Callable[..., list[Any]]) -> None:
    assert 0.5 < run_ranks(wait_in_vain, 2)[0] < 20.0


def test_slow_steps_are_waited_for() -> None:
    assert step_timeout_s(tiny_order("")) == SHORT_S
    assert step_timeout_s(tiny_order("", timeout_s=5.0)) == 5.0
    slow = tiny_order("", job={"global_batch": 100_000})
    assert step_timeout_s(slow) > 10 * SHORT_S
