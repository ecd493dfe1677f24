"""The multi-process helper itself: results in order, tracebacks of failing ranks, nothing left behind."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.planner.executor.ranks import RankError

RunRanks = Callable[..., list[Any]]


def _sum_of_ranks(rank: int, world: int, factor: int) -> tuple[int, float]:
    value = torch.tensor([float(rank * factor)])
    dist.all_reduce(value)
    return rank, value.item()


def _fail_on_one(rank: int, world: int) -> None:
    if rank == 1:
        raise ValueError("a message of rank 1")
    dist.barrier()


def _die_on_one(rank: int, world: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def test_results_in_order(run_ranks: RunRanks) -> None:
    # 10 * (0 + 1 + 2) = 30
    assert run_ranks(_sum_of_ranks, 3, 10) == [(0, 30.0), (1, 30.0), (2, 30.0)]


def test_a_failure_carries_its_traceback(run_ranks: RunRanks) -> None:
    with pytest.raises(RankError, match=r"(?s)rank 1 failed.*_fail_on_one.*a message of rank 1"):
        run_ranks(_fail_on_one, 2)


def test_a_killed_rank_is_named(run_ranks: RunRanks) -> None:
    with pytest.raises(RankError, match="rank 1 failed"):
        run_ranks(_die_on_one, 2)
