"""How sure the first plan is, and the simpler one inside the noise: probabilities, order, certificate."""

import pytest

from cost_models.specs.strategy import parse_strategy
from planner.choice import SURE, complications
from planner.evaluation import evaluate
from planner.make_plan import make_plan
from planner.odds import probability_faster
from planner.request import SearchRequest

FEW = {
    "cp": "1,2",
    "mbs": "1,2",
    "offload": "none",
    "order": "tp-cp-ep-dp-pp",
    "cp_kind": "ring",
    "dp_replicate": 1,
}
"""Pins that keep the searches short."""


@pytest.fixture(scope="module")
def of(make_situation):
    return make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=8192, global_batch=128)


def test_the_simpler_plan_is_returned_on_request_with_its_own_gap(of):
    plain, simple = (
        make_plan(of, SearchRequest(pins=FEW)),
        make_plan(of, SearchRequest(pins=FEW, prefer_simple=True)),
    )
    confidence = plain.to_json()["confidence"]
    assert confidence["chosen"] == "optimum"
    assert confidence["optimum"]["step_s"] == plain.best.step_s
    assert 0.45 <= confidence["first_faster"] <= 1.0  # of 256 draws: 0.5 less their noise where two are equal
    if confidence["simpler"] is None:
        assert simple.best.strategy == plain.best.strategy
        return
    assert confidence["simpler"]["complications"] < confidence["optimum"]["complications"]
    assert confidence["simpler"]["optimum_faster"] < SURE
    assert simple.best.strategy.to_json() == confidence["simpler"]["strategy"]
    assert simple.alternatives[0].strategy == plain.best.strategy
    bound = simple.certificate.lower_bound_s
    assert simple.certificate.gap == pytest.approx((simple.best.step_s - bound) / simple.best.step_s)
    assert simple.status == ("optimal" if simple.certificate.gap <= 1e-3 else "feasible")


def test_complications_are_counted(of):
    # tp, pp and vpp in use; core_attn alone is one more, a count of fully recomputed layers two.
    def count(text):
        return complications(evaluate(of, parse_strategy(text)).strategy)

    assert count("dp=16") == 0
    assert count("tp=2,pp=2,vpp=2") == 3
    assert count("tp=2,recompute=selective") == 2
    assert count("tp=2,recompute=full:2") == 3


def test_odds_of_two_plans_sum_to_one_and_follow_the_steps(of):
    fast, slow = (evaluate(of, parse_strategy(text)) for text in ("tp=2,mbs=2", "tp=8,pp=2,recompute=full"))
    assert fast.step_s < slow.step_s
    first = probability_faster((fast, of), (slow, of))
    assert first + probability_faster((slow, of), (fast, of)) == pytest.approx(1.0)
    assert first > 0.9
    assert probability_faster((fast, of), (fast, of)) == 0.5
