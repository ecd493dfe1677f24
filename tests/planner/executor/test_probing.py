"""A probe that runs: the small twin trains, and measured minus predicted is carried to the plan."""

import gc

import pytest

from cost_models.specs.strategy import strategy_from_mapping
from planner.evaluation import evaluate
from planner.executor.probing import run_probe
from planner.executor.request import RunOptions
from planner.probe import derive_probe
from tests.planner.executor.orders import tiny_order


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_the_probe_shows_is_carried_to_the_plan() -> None:
    big = tiny_order("pp=4,dp=2", devices=8)
    plan = evaluate(big.situation, strategy_from_mapping(big.strategy.to_json()))
    found = run_probe(derive_probe(big.situation, plan, 1), RunOptions(steps=3))
    gc.collect()
    carried, report = found.carried, found.report
    assert report.order.world_size == 1
    more_bytes = max(report.peak_by_rank) - report.prediction.memory.peak_allocated_bytes
    assert carried.more_bytes == pytest.approx(more_bytes)
    assert carried.plan_bytes == pytest.approx(plan.memory.peak_allocated_bytes + more_bytes)
    assert carried.used_bytes == pytest.approx(plan.memory.device_used_bytes + more_bytes)
    assert carried.fits
    # Seconds in proportion: the plan's predicted step times measured over predicted of the probe.
    ratio = report.step_s / report.prediction.step_s
    assert carried.plan_s == pytest.approx(plan.step_s * ratio)
    assert "curve" not in found.to_json()
