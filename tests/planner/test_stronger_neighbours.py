"""On the benchmark's cases nothing beats the plan: neighbours of the best 50 plans, 20,000 random strategies.

Three quarters of the random ones come evenly from the parts of the declared space, the others from a generator that
knows nothing of it.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
from planner.search.space.search_state import mesh_axes
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


def steps_of_cuts(context: Context, strategies: list[Strategy]) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and which fit; cuts of one mesh together."""
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


@dataclass(frozen=True)
class Priced:
    """Legal strategies with their steps, infinite where they do not fit."""

    strategies: list[Strategy]
    step_s: np.ndarray

    def below(self, step_s: float) -> list[str]:
        """Those that are faster."""
        return [
            f"{self.step_s[i]:.6g} {self.strategies[i].text()}" for i in np.flatnonzero(self.step_s < step_s)
        ]

    def fastest_of_each_mesh(self, number: int) -> list[Strategy]:
        """The fastest of so many meshes."""
        found: dict[tuple[object, ...], Strategy] = {}
        for index in np.argsort(self.step_s, kind="stable"):
            if len(found) == number or self.step_s[index] == np.inf:
                break
            found.setdefault(mesh_axes(self.strategies[index]), self.strategies[index])
        return list(found.values())


def priced(situation: Situation, strategies: Iterable[Strategy], *, alike: bool = False) -> Priced:
    """The legal ones among strategies, each once, with their steps; `alike` where many are cuts of one mesh."""
    context, engine = Context.of(situation), situation.engine
    legal = [s for s in dict.fromkeys(strategies) if not engine.violations(context.facts, s)]
    if alike or situation.cluster.is_mixed:
        step_s, fits = steps_of_cuts(context, legal)
    else:
        found = outcomes(context.pricer, legal)
        step_s, fits = found.step_s, found.fits
    return Priced(legal, np.where(fits, step_s, np.inf))


def check(situation: Situation, plans: int, number: int) -> tuple[int, int]:
    """Both questions; the legal neighbours and random strategies that were held against the plan.

    Where fewer than `plans` are shown, the fastest meshes among their neighbours are looked around, too.
    """
    result = plan_of(situation, plans - 1)
    least_s = min(result.best.step_s, result.certificate.lower_bound_s) * (1.0 - ROUNDING)
    near = [result.best.strategy, *(plan.strategy for plan in result.alternatives)]
    around = priced(situation, (other for plan in near for other in neighbours(plan, situation)), alike=True)
    assert around.below(least_s) == []
    more = [plan for plan in around.fastest_of_each_mesh(plans) if plan not in near][: plans - len(near)]
    further = priced(situation, (other for plan in more for other in neighbours(plan, situation)), alike=True)
    assert further.below(least_s) == []
    rng, anything = random.Random(11), number if situation.cluster.is_mixed else number // 4
    tried = drawn(situation, rng, anything)
    if not situation.cluster.is_mixed:
        tried += random_strategies(Context.of(situation), rng, number - anything)
    anywhere = priced(situation, tried)
    assert anywhere.below(least_s) == []
    return len(around.strategies) + len(further.strategies), len(anywhere.strategies)


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
    around, anywhere = check(two_kinds("llama-3.1-8b", 8, 64), plans=2, number=60)
    assert around > 50
    assert anywhere > 30


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_beats_a_plan_of_the_benchmark(case, record_property):
    around, anywhere = check(case.situation(), plans=50, number=20_000)
    record_property("neighbours", around)
    record_property("random", anywhere)
    assert anywhere > 10_000


@pytest.mark.matrix
@pytest.mark.parametrize("request_of", MIXED, ids=lambda r: f"{r[0]}-{2 * r[1]}")
def test_nothing_beats_a_plan_of_two_kinds(request_of, record_property):
    around, anywhere = check(two_kinds(*request_of), plans=50, number=5_000)
    record_property("neighbours", around)
    record_property("random", anywhere)
    assert anywhere > 1_000
