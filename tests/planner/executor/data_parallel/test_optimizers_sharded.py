"""Optimizers that need more than single elements, under sharding: equal to one process with whole tensors."""

from collections.abc import Callable
from typing import Any

import pytest

from cost_models.specs.job import Optimizer, Precision
from planner.executor.optimizers.settings import OptimizerSettings
from tests.planner.executor.data_parallel.toy import Case, errors
from tests.planner.executor.strategies import strategy

RunRanks = Callable[..., list[Any]]


def settings(kind: Optimizer) -> OptimizerSettings:
    return OptimizerSettings(kind=kind, lr=1e-2)


EXACT = {
    "muon-zero1-tp2": Case(strategy(dp_shard=2, tp=2, zero=1), optimizer=settings(Optimizer.MUON)),
    "muon-zero3": Case(strategy(dp_shard=2, zero=3), engine="fsdp2", optimizer=settings(Optimizer.MUON)),
    "muon-zero2-tp2": Case(strategy(dp_shard=2, tp=2, zero=2), optimizer=settings(Optimizer.MUON)),
    "muon-ddp": Case(strategy(dp_shard=2), engine="ddp", optimizer=settings(Optimizer.MUON)),
    "muon-server": Case(strategy(dp_shard=2), "parameter_server", optimizer=settings(Optimizer.MUON)),
    # Blocks of 8-bit moments never cross a parameter, so ZeRO-1 quantizes as one process does.
    "adam8bit-zero1": Case(strategy(dp_shard=2, zero=1), optimizer=settings(Optimizer.ADAM8BIT)),
    "adafactor-zero0": Case(strategy(dp_shard=2), optimizer=settings(Optimizer.ADAFACTOR)),
    "sgd-zero1": Case(strategy(dp_shard=2, zero=1), optimizer=settings(Optimizer.SGD)),
    # Two chunks on one rank whose first and last layers share a table, as under a V schedule.
    "adamw-two-chunks": Case(strategy(dp_shard=2, vpp=2, zero=1), tied=True),
}


# The rest of them is slow: the same code paths in other company.
QUICK = ("muon-zero1-tp2", "adam8bit-zero1", "adamw-two-chunks")
CHOSEN = [
    pytest.param(case, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for name, case in EXACT.items()
]


@pytest.mark.parametrize("case", CHOSEN)
def test_equals_one_process(run_ranks: RunRanks, case: Case) -> None:
    for found in run_ranks(errors, case.strategy.world_size, case):
        assert found["gradients"] < 1e-5
        assert found["norm"] < 1e-5
        assert found["loss"] < 1e-6
        assert found["parameters"] < 1e-5


def test_8_bit_moments_of_shards_stay_close(run_ranks: RunRanks) -> None:
    # Blocks start anew in every shard, so quantization differs; five steps of lr 1e-2 move weights by up to 5e-2.
    case = Case(strategy(dp_shard=2, zero=3), engine="fsdp2", optimizer=settings(Optimizer.ADAM8BIT))
    for found in run_ranks(errors, 2, case):
        assert found["loss"] < 1e-4
        assert found["parameters"] < 2e-2


BF16 = {
    "zero0": Case(strategy(dp_shard=2), precision=Precision.BF16),
    "zero1-tp2": Case(strategy(dp_shard=2, tp=2, zero=1), precision=Precision.BF16),
    "zero3": Case(strategy(dp_shard=2, zero=3), engine="fsdp2", precision=Precision.BF16),
    "ddp": Case(strategy(dp_shard=2), engine="ddp", precision=Precision.BF16),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BF16.values(), ids=BF16)
def test_bf16_is_near_fp32(run_ranks: RunRanks, case: Case) -> None:
    # bf16 keeps 8 bits: products are off by up to 2^-8 = 4e-3, sums of a few by up to 1e-1 of the largest.
    for found in run_ranks(errors, case.strategy.world_size, case):
        assert 1e-4 < found["gradients"] < 1e-1
        assert found["loss"] < 2e-3
