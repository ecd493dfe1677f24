"""Intervals and draws: symmetric in the logarithm, wider for what is less known, shared between layouts."""

import math

import numpy as np
import pytest

from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import StrategyRequest
from planner.evaluation import evaluate
from planner.intervals import COMMUNICATION, NORMAL_95, Spread, spread_of, step_draws, step_interval
from planner.request import CatalogModel, PresetCluster
from planner.situation import Situation, resolve

QUIET: dict[str, float] = {}


def situation(
    model: str = "llama-3.1-8b", cluster: str = "dgx-h100", devices: int = 8, **options: str
) -> Situation:
    job = JobRequest(seq_len=8192, global_batch=64, options=options)
    return resolve(CatalogModel(name=model), PresetCluster(name=cluster, devices=devices), job)


def test_the_interval_is_symmetric_in_the_logarithm():
    low, high = step_interval(10.0, QUIET, situation())
    assert low * high == pytest.approx(100.0)
    assert math.log(high / 10.0) == pytest.approx(NORMAL_95 * spread_of(situation()).total(QUIET, 10.0))


def test_communication_that_shows_widens_it_by_its_share():
    # own 0.03, common 0.04, half of the step at 0.2 a second: sqrt(0.0009 + 0.0016 + 0.01)
    spread = Spread(0.04, 0.03, 0.2)
    assert spread.total({"tp_communication": 5.0, "compute": 5.0}, 10.0) == pytest.approx(math.sqrt(0.0125))
    assert "tp_communication" in COMMUNICATION


@pytest.mark.parametrize(
    "wider",
    [
        situation(devices=1024),
        situation("mixtral-8x7b"),
        situation(cluster="mi300x"),
        situation(**{"engine.generation": "nemo-2024"}),
    ],
    ids=["devices", "experts", "unseen device", "unseen software"],
)
def test_what_is_less_known_is_wider(wider: Situation):
    assert spread_of(wider).common > spread_of(situation()).common


def test_devices_count_beyond_the_largest_run():
    known = situation().uncertainty.kinds["dense"].largest_of("bridge-2026")
    assert 8 < known < 1024
    within, twice = spread_of(situation(devices=known)).common, spread_of(situation(devices=2 * known)).common
    assert within == spread_of(situation()).common
    # one doubling: 0.005 in the root of squares
    assert twice == pytest.approx(math.hypot(within, 0.005))


def test_layouts_of_one_situation_err_together():
    where = situation()
    first, second = (evaluate(where, StrategyRequest(tp=tp)) for tp in (1, 2))
    a, b = (np.asarray(step_draws(found, where)) for found in (first, second))
    assert tuple(a) == step_draws(first, where)
    assert float(np.corrcoef(np.log(a), np.log(b))[0, 1]) > 0.1
    inside = np.mean((a > first.step_s_low) & (a < first.step_s_high))
    assert 0.8 < inside < 0.98
