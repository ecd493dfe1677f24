"""Every way of keeping copies in step trains as one process does: gradients, norm, losses, parameters."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.planner.executor.data_parallel.toy import Case, errors
from tests.planner.executor.strategies import strategy

RunRanks = Callable[..., list[Any]]

CHOSEN = {
    "ddp-2": Case(strategy(dp_shard=2), engine="ddp", tied=True),
    "torch-zero0-pp2-tied": Case(strategy(dp_shard=2, pp=2), tied=True),
    "torch-zero1-4": Case(strategy(dp_shard=4, zero=1)),
    "torch-zero1-tp2-sp": Case(strategy(dp_shard=2, tp=2, zero=1, sp=True), tied=True),
    "parameter-server-2": Case(strategy(dp_shard=2), engine="parameter_server", tied=True),
    "fsdp2-zero3-2": Case(strategy(dp_shard=2, zero=3), engine="fsdp2", tied=True),
    "fsdp2-hsdp": Case(strategy(dp_shard=2, dp_replicate=2, zero=3), engine="fsdp2"),
    "torch-zero2-tp2-sp": Case(strategy(dp_shard=2, tp=2, zero=2, sp=True)),
}
REST = {
    "ddp-4": Case(strategy(dp_shard=4), engine="ddp"),
    "torch-zero0-2": Case(strategy(dp_shard=2), tied=True),
    "torch-zero1-2": Case(strategy(dp_shard=2, zero=1)),
    "torch-zero1-tp2": Case(strategy(dp_shard=2, tp=2, zero=1, sp=False)),
    "torch-zero1-pp2-tied": Case(strategy(dp_shard=2, pp=2, zero=1), tied=True),
    "parameter-server-4": Case(strategy(dp_shard=4), engine="parameter_server"),
    "fsdp2-zero2-2": Case(strategy(dp_shard=2, zero=2), engine="fsdp2"),
    "fsdp2-zero3-4": Case(strategy(dp_shard=4, zero=3), engine="fsdp2"),
    "torch-zero3-tp2": Case(strategy(dp_shard=2, tp=2, zero=3, sp=False), tied=True),
    "torch-zero2-pp2-tied": Case(strategy(dp_shard=2, pp=2, zero=2), tied=True),
    "torch-zero3-alone": Case(strategy(zero=3)),
    "torch-zero3-tp2-alone": Case(strategy(tp=2, zero=3, sp=True)),
    "torch-zero1-alone": Case(strategy(zero=1)),
    # On a CPU, the host's memory is the device's: offload changes no number.
    "offload-optimizer-zero1": Case(strategy(dp_shard=2, zero=1, offload="optimizer")),
    "offload-parameters-zero3": Case(strategy(dp_shard=2, zero=3, offload="parameters"), engine="fsdp2"),
    "offload-optimizer-zero3": Case(strategy(dp_shard=2, zero=3, offload="optimizer"), engine="fsdp2"),
}


def check(run_ranks: RunRanks, case: Case) -> None:
    for found in run_ranks(errors, case.strategy.world_size, case):
        assert found["gradients"] < 1e-5
        assert found["norm"] < 1e-5
        assert found["loss"] < 1e-6
        assert found["parameters"] < 1e-3


@pytest.mark.parametrize("case", CHOSEN.values(), ids=CHOSEN)
def test_a_chosen_layout_equals_one_process(run_ranks: RunRanks, case: Case) -> None:
    check(run_ranks, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", REST.values(), ids=REST)
def test_every_layout_equals_one_process(run_ranks: RunRanks, case: Case) -> None:
    check(run_ranks, case)
