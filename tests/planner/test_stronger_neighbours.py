"""On the benchmark's cases nothing beats the plan: neighbours of the best 50 plans, 20,000 random strategies.

The random ones come half from the declared space, evenly over its parts, half from a generator that does not know it.
"""

import random
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from cost_models.profiles import cluster_from_spec
from cost_models.specs.job import JobRequest
from cost_models.specs.recompute import ALL_LAYERS
from cost_models.specs.strategy import Strategy
from planner.answers import PlanResult
from planner.evaluation import Context
from planner.make_plan import make_plan
from planner.request import CatalogModel, SearchRequest
from planner.search.bulk import outcomes
from planner.search.problem import price_many
from planner.situation import Situation, resolve_model, situate
from planner.validation.search_speed import CASES, random_strategies
from tests.planner.search.drawn import drawn
from tests.planner.test_neighbours import neighbours

ROUNDING = 1e-9
SMALL = [("llama-3.1-8b", 16, "megatron"), ("mixtral-8x7b", 16, "torch")]
MIXED = [("llama-3.1-70b", 512, 512), ("deepseek-v3", 1024, 4096)]
"""Model, devices of either kind, sequences."""


def plan_of(situation: Situation, top_k: int) -> PlanResult:
    """A plan that is certified, whatever the machine is busy with."""
    result = make_plan(situation, SearchRequest(top_k=top_k, max_seconds=3600.0))
    assert result.status == "optimal"
    return result


def steps_of_groups(context: Context, strategies: list[Strategy]) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and which fit, where pipeline ranks lie on several groups; cuts of one mesh together."""
    step_s, fits = np.full(len(strategies), np.inf), np.zeros(len(strategies), dtype=bool)

    def mesh_of(place: int) -> Strategy:
        recompute = strategies[place].recompute
        full = ALL_LAYERS if recompute.full == ALL_LAYERS else 0
        return replace(strategies[place], stages=(), recompute=replace(recompute, full=full))

    for _, members in groupby(sorted(range(len(strategies)), key=lambda i: repr(mesh_of(i))), key=mesh_of):
        places = list(members)
        of = [strategies[place] for place in places]
        stages, full = np.array([s.stages for s in of]), np.array([s.full_layers() for s in of])
        prices = price_many(context.mesh_of(of[0]), stages, full)
        step_s[places], fits[places] = prices.step_s, prices.fits
    return step_s, fits


def beats(situation: Situation, result: PlanResult, strategies: list[Strategy]) -> tuple[int, list[str]]:
    """How many are legal, and those that fit and are faster than the lower bound allows, or than the plan."""
    context, engine = Context.of(situation), situation.engine
    legal = [s for s in dict.fromkeys(strategies) if not engine.violations(context.facts, s)]
    if situation.cluster.is_mixed:
        step_s, fits = steps_of_groups(context, legal)
    else:
        found = outcomes(context.pricer, legal)
        step_s, fits = found.step_s, found.fits
    least_s = min(result.best.step_s, result.certificate.lower_bound_s) * (1.0 - ROUNDING)
    better = [
        f"{one_s:.6g} {strategy.text()}"
        for strategy, one_s, fit in zip(legal, step_s, fits, strict=True)
        if fit and one_s < least_s
    ]
    return len(legal), better


def check(situation: Situation, plans: int, number: int) -> tuple[int, int]:
    """Both questions; the legal neighbours and random strategies that were held against the plan."""
    result = plan_of(situation, plans - 1)
    near = [result.best.strategy, *(plan.strategy for plan in result.alternatives)]
    around, better = beats(
        situation, result, [other for plan in near for other in neighbours(plan, situation)]
    )
    assert better == []
    rng, half = random.Random(11), number // 2
    tried = drawn(situation, rng, number if situation.cluster.is_mixed else half)
    if not situation.cluster.is_mixed:
        tried += random_strategies(Context.of(situation), rng, number - half)
    anywhere, better = beats(situation, result, tried)
    assert better == []
    return around, anywhere


def two_kinds(model: str, of_each: int, batch: int) -> Situation:
    """As many A100 as H100 in nodes of eight."""
    groups = [
        {"name": name, "device": device, "nodes": of_each // 8, "devices_per_node": 8}
        for name, device in (("old", "a100-sxm-80gb"), ("new", "h100-sxm-80gb"))
    ]
    tiers = [
        {"name": "nvlink", "bytes_per_s": 3e11, "latency_s": 2e-6},
        {"name": "infiniband", "bytes_per_s": 2.5e10, "latency_s": 4e-6},
    ]
    cluster = cluster_from_spec({"name": "two kinds", "groups": groups, "tiers": tiers})
    job = JobRequest(seq_len=4096, global_batch=batch)
    return situate(resolve_model(CatalogModel(name=model)), cluster, job)


@pytest.mark.parametrize(("model", "devices", "engine"), SMALL)
def test_nothing_beats_a_small_plan(make_situation, model, devices, engine):
    of = make_situation(model, "dgx-h100", devices, engine=engine, seq_len=4096, global_batch=64)
    around, anywhere = check(of, plans=5, number=300)
    assert around > 100
    assert anywhere > 200


def test_nothing_beats_a_small_plan_of_two_kinds():
    around, anywhere = check(two_kinds("llama-3.1-8b", 8, 64), plans=3, number=100)
    assert around > 50
    assert anywhere > 50


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_beats_a_plan_of_the_benchmark(case, record_property):
    around, anywhere = check(case.situation(), plans=50, number=20_000)
    record_property("neighbours", around)
    record_property("random", anywhere)
    assert anywhere > 15_000


@pytest.mark.matrix
@pytest.mark.parametrize("request_of", MIXED, ids=lambda r: f"{r[0]}-{2 * r[1]}")
def test_nothing_beats_a_plan_of_two_kinds(request_of, record_property):
    around, anywhere = check(two_kinds(*request_of), plans=50, number=20_000)
    record_property("neighbours", around)
    record_property("random", anywhere)
    assert anywhere > 5_000
