"""On the benchmark's cases nothing beats the plan: neighbours of the best 50 plans, 20,000 random strategies."""

import random

import pytest

from planner.answers import PlanResult
from planner.evaluation import Context
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.search.bulk import outcomes
from planner.situation import Situation
from planner.validation.search_speed import CASES, random_strategies
from tests.planner.test_neighbours import neighbours

ROUNDING = 1e-9
SMALL = [("llama-3.1-8b", 16, "megatron"), ("mixtral-8x7b", 16, "torch")]


def plan_of(situation: Situation, top_k: int) -> PlanResult:
    """A plan that is certified, whatever the machine is busy with."""
    result = make_plan(situation, SearchRequest(top_k=top_k, max_seconds=3600.0))
    assert result.status == "optimal"
    return result


def beats(situation: Situation, result: PlanResult, strategies: list) -> list[str]:
    """Legal strategies that fit and are faster than the lower bound allows, or than the plan."""
    context, engine = Context.of(situation), situation.engine
    legal = [s for s in dict.fromkeys(strategies) if not engine.violations(context.facts, s)]
    found = outcomes(context.pricer, legal)
    least_s = min(result.best.step_s, result.certificate.lower_bound_s) * (1.0 - ROUNDING)
    return [
        f"{step_s:.6g} {strategy.text()}"
        for strategy, step_s, fits in zip(legal, found.step_s, found.fits, strict=True)
        if fits and step_s < least_s
    ]


def check(situation: Situation, plans: int, drawn: int) -> int:
    """Both questions; the number of strategies that were held against the plan."""
    result = plan_of(situation, plans - 1)
    near = [result.best.strategy, *(plan.strategy for plan in result.alternatives)]
    tried = [other for plan in near for other in neighbours(plan, situation)]
    tried += list(random_strategies(Context.of(situation), random.Random(11), drawn))
    assert beats(situation, result, tried) == []
    return len(tried)


@pytest.mark.parametrize(("model", "devices", "engine"), SMALL)
def test_nothing_beats_a_small_plan(make_situation, model, devices, engine):
    of = make_situation(model, "dgx-h100", devices, engine=engine, seq_len=4096, global_batch=64)
    assert check(of, plans=5, drawn=300) > 400


@pytest.mark.matrix
@pytest.mark.parametrize("case", [c for c in CASES if c.within_s], ids=lambda case: case.name)
def test_nothing_beats_a_plan_of_the_benchmark(case):
    assert check(case.situation(), plans=50, drawn=20_000) > 20_000
