"""Fewest devices, cost, energy and goodput over numbers of devices, against going through a table of steps."""

import math
import random

import pytest

from cost_models.errors import BadInput
from planner.objectives.asking import Asking
from planner.objectives.counts import all_counts, coarse_counts, doubled_counts
from planner.objectives.run import RunTerms
from planner.request import RunRequest, SearchRequest
from planner.search_request import check_search
from planner.situation import changed

TOKENS = 1e12


def random_steps(counts, seed):
    """Steps that mostly fall with more devices, with holes and bad counts."""
    rng = random.Random(seed)
    return {d: 400.0 / d * rng.uniform(1.0, 2.5) for d in counts if rng.random() < 0.8}


def terms_at(situation, run, devices):
    return RunTerms.of(changed(situation, {"devices": devices}), run)


def test_declared_counts(tiny):
    cluster = tiny(44).cluster
    assert all_counts(cluster) == (*range(1, 9), 16, 24, 32, 40, 44)
    assert coarse_counts(cluster) == (1, 2, 4, 8, 16, 24, 32, 44)
    assert doubled_counts(cluster) == (1, 2, 4, 8, 16, 32, 44)
    assert all_counts(tiny(3).cluster) == (1, 2, 3)
    many = all_counts(tiny(8 * 256).cluster)
    # 1 to 7 devices, 1 to 64 nodes, then 66, 68, ... 128 and 132, 136, ... 256
    assert len(many) == 7 + 64 + 32 + 32
    assert many[71:73] == (8 * 66, 8 * 68)
    assert many[-2:] == (8 * 252, 8 * 256)


@pytest.mark.parametrize("seed", range(12))
def test_fewest_devices_is_the_least_count_that_will_do(tiny, tables, seed):
    situation = tiny(64)
    counts = all_counts(situation.cluster)
    table = tables(random_steps(counts, seed), tightness=random.Random(seed).uniform(0.3, 1.0))
    run = RunRequest(tokens=TOKENS, deadline_s=2.0e8)
    limits = {d: terms_at(situation, run, d).slowest_step_s for d in counts}
    doing = [d for d in counts if table.steps.get(d, math.inf) <= limits[d]]
    found = table.plan(situation, objective="devices", run=run)
    proof = found.certificate.proof
    if not doing:
        assert (found.status, found.best) == ("infeasible", None)
        return
    assert found.changes["devices"] == min(doing) == proof["value"] == proof["bound"]
    assert found.status == "optimal"
    smaller = [point for point in proof["points"] if point["devices"] < min(doing)]
    assert {point["devices"] for point in smaller} == {d for d in counts if d < min(doing)}
    assert all(point["outcome"] in ("too_slow", "does_not_fit") for point in smaller)


def test_a_shortfall_says_by_how_much(tiny, tables):
    run = RunRequest(
        tokens=98_304.0 * 1000, deadline_s=1000.0, mtbf_device_hours=1e15, checkpoint_s=0, restart_s=0
    )
    found = tables({8: 3.0}).plan(tiny(8), objective="devices", run=run)
    # 98,304 tokens a step: 1,000 steps of 3 s where 1 s each was asked for
    assert (found.status, found.best, found.run) == ("infeasible", None, None)
    assert "3 s a step" in found.reason
    assert [relaxation.change for relaxation in found.relaxations] == ["deadline=0.04d", "devices=24"]


@pytest.mark.parametrize("objective", ["cost", "cost_per_token", "energy", "goodput"])
@pytest.mark.parametrize("seed", range(4))
def test_scaled_objectives_are_the_best_of_the_table(tiny, tables, objective, seed):
    situation = tiny(96)
    counts = coarse_counts(situation.cluster)
    table = tables(random_steps(counts, seed), tightness=0.7)
    run = RunRequest(tokens=TOKENS, deadline_s=2.5e8, price_per_device_hour_usd=2.0, mtbf_device_hours=2000.0)
    values = {}
    for devices, step_s in table.steps.items():
        terms = terms_at(situation, run, devices)
        wall_h = terms.steps * step_s / terms.goodput.share / 3600.0
        if wall_h * 3600.0 <= run.deadline_s:
            values[devices] = {
                "cost": 2.0 * devices * wall_h,
                "cost_per_token": 2.0 * devices * step_s / 3600.0 / terms.units_per_step * 1e6,
                "energy": devices * 812.5 / 1000.0 * wall_h,
                "goodput": -terms.units_per_step / step_s * terms.goodput.share,
            }[objective]
    found = table.plan(situation, objective=objective, run=run)
    best = min(values, key=values.__getitem__)
    proof = found.certificate.proof
    assert found.changes == {"devices": best}
    assert proof["value"] == pytest.approx(abs(values[best]))
    assert proof["gap"] <= 1e-3
    assert found.status == "optimal"
    for point in proof["points"]:
        if point["devices"] in values and point["bound"] is not None:
            sign = -1.0 if objective == "goodput" else 1.0
            assert sign * point["bound"] <= values[point["devices"]] * (1.0 + 1e-9 * sign) + 1e-9


def test_without_a_price_cost_counts_device_hours(tiny, tables):
    found = tables({4: 3600.0, 8: 1900.0}).plan(tiny(8), objective="cost")
    assert found.certificate.proof["unit"] == "device hours (no price known) a step"
    assert found.certificate.proof["value"] == pytest.approx(4.0)  # 4 devices for an hour; 8 would take 4.2
    assert found.changes == {"devices": 4}


def test_cost_of_a_step_is_price_times_devices_times_step(tiny, tables):
    run = RunRequest(price_per_device_hour_usd=3.6)
    found = tables({8: 10.0}).plan(tiny(8), objective="cost", run=run)
    assert found.certificate.proof["value"] == pytest.approx(3.6 / 3600.0 * 8 * 10.0)
    assert found.run is None  # no run was stated


def test_time_that_runs_out_is_said(tiny, tables):
    situation = tiny(64)
    table = tables({d: 100.0 / d for d in all_counts(situation.cluster)}, tightness=0.1)
    found = table.plan(situation, objective="devices", max_seconds=1e-9)
    assert found.status == "unknown"
    assert found.certificate.proof["bound"] == 1
    assert {point["outcome"] for point in found.certificate.proof["points"]} <= {"open", "too_slow"}


def test_the_run_stands_beside_the_fastest_plan_too(tiny, tables):
    found = tables({8: 2.0}).plan(tiny(8), run=RunRequest(tokens=1e9))
    assert found.certificate.proof is None
    assert found.run["steps"] == math.ceil(1e9 / 98_304)


def test_a_deadline_needs_an_amount():
    with pytest.raises(BadInput, match="--tokens"):
        check_search(SearchRequest(run=RunRequest(deadline_s=10.0)))


def test_asking_keeps_the_time_that_is_left(tiny, tables):
    seen = []

    def fastest(situation, search, report, **more):
        seen.append(search.max_seconds)
        return tables({}).fastest(situation, search, report)

    from planner.objectives import StepOracle

    asking = Asking(
        tiny(8), SearchRequest(max_seconds=5.0), StepOracle(fastest, lambda s, q: 1.0), lambda p: None
    )
    asking.started_s -= 3.0
    asking.fastest({})
    assert 1.0 < seen[0] <= 2.0
    assert asking.is_late is False
    asking.started_s -= 3.0
    assert asking.is_late is True
