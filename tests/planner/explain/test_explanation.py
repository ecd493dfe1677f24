"""Explanations: shares that sum to one, causes that sum to the difference, sentences with their numbers."""

import math

import pytest

from cost_models.profiles import cluster_from_spec
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.answers import Prediction
from planner.compare import compare, side
from planner.evaluation import Context, evaluate, evaluate_many
from planner.explain import against, difference, explain
from planner.explain.axes import neighbours
from planner.explain.binding import bindings
from planner.explain.pinned import best_under, with_pins
from planner.request import CatalogModel, SearchRequest
from planner.situation import resolve_model, situate

REST = ",cp=1,vpp=1,schedule=1f1b,zero=1,sp=true,order=tp-cp-ep-dp-pp,offload=none,cp_kind=ring"
PIPE = "tp=2,pp=4,mbs=1,recompute=selective"


@pytest.fixture(scope="module")
def of(make_situation):
    return make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=8192, global_batch=64)


@pytest.fixture(scope="module")
def plan(of):
    return evaluate(of, parse_strategy(PIPE))


def test_shares_of_what_a_stages_time_follows_sum_to_one(of, plan):
    found = bindings(Context.of(of), plan)
    assert len(found) == 4
    for stage in found:
        assert math.fsum(stage.shares.values()) == pytest.approx(1.0, abs=0.01)
        assert stage.binding in stage.shares
        assert 0.0 <= stage.slack_s < plan.step_s
        # Busy and idle seconds of a rank make the step.
        assert stage.busy_s < plan.step_s
    assert min(stage.slack_s for stage in found) == 0.0
    assert all(stage.shares["compute"] > 0.5 for stage in found)


def test_an_explanation_in_no_time_prices_neighbours(of, plan):
    found = explain(of, SearchRequest(), plan.strategy, [parse_strategy("tp=4,pp=2")], max_seconds=0.0)
    shown = found.to_json()
    assert {axis["axis"] for axis in shown["axes"]} >= {"tp", "cp", "pp", "vpp", "dp", "mbs", "recompute"}
    for axis in found.axes:
        for other in axis.alternatives:
            assert other.how == "neighbour"
            if other.difference is not None:
                assert math.fsum(other.difference.seconds.values()) == pytest.approx(
                    other.difference.step_s, abs=1e-9 * plan.step_s
                )
    (runner_up,) = found.runners_up
    assert 0.0 <= runner_up.plan_faster <= 1.0
    by_key = {change.key: change for change in found.sensitivity}
    assert set(by_key) >= {"node", "memory", "flops", "memory_bandwidth", "link:nvlink", "link:infiniband"}
    # 10 % more FLOP/s save at most 1 - 1 / 1.1 = 9.1 % of the step.
    gain = 1.0 - by_key["flops"].after_s / plan.step_s
    assert 0.05 < gain < 0.091
    assert by_key["memory"].repriced_s == plan.step_s
    assert "sets the pace" in found.summary()


def test_a_searched_alternative_is_no_slower_than_neighbours(of, plan):
    narrow = SearchRequest(pins={"cp": 1, "mbs": 1, "vpp": 1, "offload": "none", "order": "tp-cp-ep-dp-pp"})
    searched = best_under(of, with_pins(narrow, {"tp": 4}), 30.0).best
    near = evaluate_many(of, list(neighbours(plan.strategy, "tp", 4, of.model.num_blocks)))
    fitting = [
        p.step_s for p in near if isinstance(p, Prediction) and p.verdict == "fits" and p.strategy.cp == 1
    ]
    assert fitting
    assert searched.strategy.tp == 4
    assert searched.step_s <= min(fitting) * 1.011


@pytest.mark.parametrize(
    ("asked", "verdict", "says"),
    [
        ("tp=3", "illegal", "16 devices are not divisible by tp 3"),
        ("mbs=3", "illegal", "global batch 64 is not divisible by mbs 3"),
        ("ep=2", "illegal", "has no experts"),
        ("zero=3", "illegal", "engine.megatron_fsdp=true"),
        ("schedule=zb-h1", "illegal", "schedule=1f1b"),
        ("tp=1,pp=1,cp=1,recompute=none", "does_not_fit", "too much"),
        ("tp=2,recompute=selective", "same", "as long"),
        ("tp=8,pp=2,cp=1", "slower", "P(the plan is faster)"),
        (
            PIPE + ",cp=1,vpp=1,schedule=1f1b,zero=1,sp=true,order=tp-cp-ep-dp-pp,offload=none,cp_kind=ring",
            "same",
            "as long",
        ),
    ],
)
def test_why_not(of, plan, asked, verdict, says):
    contrast = against(of, SearchRequest(), plan, parse_strategy(asked), 5.0)
    assert contrast.verdict == verdict
    assert says in contrast.sentence()
    assert contrast.to_json()["sentence"] == contrast.sentence()


def test_stages_that_are_stated_are_kept(of, plan):
    contrast = against(of, SearchRequest(), plan, parse_strategy("pp=4,stages=7+8+9+8"), 5.0)
    assert contrast.other.strategy.stages == (7, 8, 9, 8)


def test_a_strategy_as_printed_is_priced_as_it_is(of, plan):
    other = evaluate(of, parse_strategy("tp=4,pp=2,recompute=selective"))
    contrast = against(of, SearchRequest(), plan, parse_strategy(other.strategy.text()), 5.0)
    assert (contrast.completed, contrast.other.strategy) == (False, other.strategy)


@pytest.mark.parametrize(
    ("asked", "pp"),
    [("groups=new", None), ("groups=old+new", None), ("groups=o*1+new*2", 3), ("groups=old/new", None)],
)
def test_device_groups_are_pinned_as_a_placement(asked, pp):
    groups = [
        {"name": name, "device": device, "nodes": nodes, "devices_per_node": 4}
        for name, device, nodes in (("old", "a100-sxm-80gb", 1), ("new", "h100-sxm-80gb", 2))
    ]
    tiers = [
        {"name": "nvlink", "bytes_per_s": 3e11, "latency_s": 2e-6},
        {"name": "infiniband", "bytes_per_s": 2.5e10, "latency_s": 4e-6},
    ]
    cluster = cluster_from_spec({"name": "two", "groups": groups, "tiers": tiers})
    job = JobRequest(seq_len=2048, global_batch=24)
    of = situate(resolve_model(CatalogModel(name="llama-3.2-1b")), cluster, job)
    plan = evaluate(of, parse_strategy("tp=4,pp=3"))
    contrast = against(of, SearchRequest(), plan, parse_strategy(asked), 10.0)
    assert contrast.verdict in ("same", "slower", "faster")
    placed = contrast.other.strategy
    wanted = "old+new" if pp else asked.removeprefix("groups=")
    assert "+".join(dict.fromkeys(placed.stage_groups)) == wanted
    assert pp in (None, placed.pp)


def test_a_comparison_turns_round(of):
    first, second = side(of, parse_strategy(PIPE)), side(of, parse_strategy("tp=8"))
    there, back = compare(first, second), compare(second, first)
    assert there.difference.step_s == -back.difference.step_s
    assert there.first_faster == pytest.approx(1.0 - back.first_faster)
    assert there.difference.knobs["tp"] == (2, 8)
    assert len(there.difference.stages) == 4
    assert there.difference.stages[3].second_bytes is None
    assert there.question == {}


def test_a_strategy_does_not_differ_from_itself(plan):
    same = difference(plan, plan)
    assert same.knobs == {}
    assert same.step_s == 0.0
    assert same.knob_text() == "nothing"
    assert same.where() == ""
