"""Reductions start while the last backward still runs, in one order, and only then."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.planner.executor.data_parallel.toy import Case, batch_of, loss_sum, start
from tests.planner.executor.strategies import strategy

RunRanks = Callable[..., list[Any]]


def _started(rank: int, world: int, zero: int) -> list[int]:
    """Buckets whose reduction has started after each of two micro-batches, and how many there are."""
    worker = start(Case(strategy(dp_shard=world, zero=zero)))
    data: Any = worker.data
    tokens, targets, valid = batch_of(rank)
    data.start_step(2)
    found = []
    for _ in range(2):
        (loss_sum(data.modules[0](tokens), targets) / valid).backward()
        found.append(len(data._works))
    data.finish_gradients()
    data.step(1.0)
    return [*found, len(data._buckets)]


def test_all_buckets_start_in_the_last_micro_batch(run_ranks: RunRanks) -> None:
    for zero in (0, 1):
        for first, second, buckets in run_ranks(_started, 2, zero):
            assert first == 0
            assert second == buckets > 1


def _one_too_many(rank: int, world: int) -> str:
    worker = start(Case(strategy(dp_shard=world, zero=1)))
    data: Any = worker.data
    tokens, targets, _ = batch_of(rank)
    data.start_step(1)
    loss_sum(data.modules[0](tokens), targets).backward()
    with pytest.raises(RuntimeError) as caught:
        loss_sum(data.modules[0](tokens), targets).backward()
    data.finish_gradients()
    return str(caught.value)


def test_gradients_that_come_too_late_are_no_silent_loss(run_ranks: RunRanks) -> None:
    for message in run_ranks(_one_too_many, 2):
        assert "accumulate each parameter's gradient once per micro-batch" in message
