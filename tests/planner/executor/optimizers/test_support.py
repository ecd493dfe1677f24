"""Optimizers that a layout cannot honour are refused by name."""

from cost_models.specs.job import Optimizer
from planner.executor.optimizers import optimizer_violations
from tests.planner.executor.jobs import job
from tests.planner.executor.strategies import strategy


def test_adafactor_needs_whole_matrices() -> None:
    adafactor = job(optimizer=Optimizer.ADAFACTOR)
    assert not optimizer_violations(adafactor, strategy(dp_shard=4, zero=0))
    assert not optimizer_violations(adafactor, strategy(dp_shard=1, zero=3))
    (found,) = optimizer_violations(adafactor, strategy(dp_shard=4, zero=1))
    assert found.rule == "run_adafactor"
    assert "zero 1 with dp 4 and tp 1" in found.detail
    assert optimizer_violations(adafactor, strategy(tp=2))


def test_muon_needs_matrices_on_the_device() -> None:
    (found,) = optimizer_violations(job(optimizer=Optimizer.MUON), strategy(zero=3, offload="optimizer"))
    assert found.rule == "run_muon_offload"


def test_the_others_run_everywhere() -> None:
    for kind in (Optimizer.ADAMW, Optimizer.SGD, Optimizer.ADAM8BIT, Optimizer.MUON):
        assert not optimizer_violations(job(optimizer=kind), strategy(tp=2, dp_shard=2, zero=3))
