"""Whatever a command says of a layout holds: random small requests, every command, each layout re-checked by `verify`.

`verify` asks the rules, counts devices, layers and sequences, and walks schedule and memory operation by operation;
here the request is also the one that a reader of the answer would put together from it.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from cost_models.errors import BadInput
from cost_models.profiles import cluster_from_spec
from cost_models.readers import read_model
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy, strategy_from_mapping
from planner.answers import PlanResult, Prediction
from planner.evaluation import Context, evaluate
from planner.explain.against import against
from planner.make_plan import make_plan
from planner.objectives.front import Front
from planner.plan_file import plan_document, resolved_request
from planner.probe import derive_probe
from planner.relax import leanest
from planner.replan import replan
from planner.request import LayersModel, PlanRequest, RunRequest, SearchRequest, SpecCluster
from planner.situation import Situation, changed, resolve, situate
from planner.sizing import SizeCluster, SizeRequest, size
from planner.sweep.solve import solve_request
from planner.verify import verify
from tests.planner.search.drawn import drawn
from tests.planner.search.test_plan_anytime import counts_add_up
from tests.planner.test_plan_brute_force import ENGINES, WHOLE_LAYERS, random_model

OPTIONS = (
    {},
    {},
    {"engine.grad_dtype": "bf16"},
    {"engine.fused_cross_entropy": True},
    {"job.trainable": "lora:r=8"},
)
PINS = (
    {},
    {},
    {"offload": "allowed"},
    {"act_offload": "allowed"},
    {"tp": "1..2"},
    {"recompute": "selective"},
)
DEVICES = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm")
OBJECTIVES = ("cost", "devices", "batch", "cost_per_token", "energy", "seq_len", "goodput", "memory")
SAME = 1e-9

Said = tuple[str, Situation, Prediction]
"""Which command said what of which request."""


def random_cluster(rng: random.Random, *, mixed: bool) -> ClusterSpec:
    """Small nodes of one kind or of two, with 2 to 30 GB of memory a device."""
    groups = [
        {
            "name": "ab"[place],
            "device": device,
            "nodes": rng.choice((1, 2, 3)),
            "devices_per_node": rng.choice((2, 4)),
        }
        for place, device in enumerate(rng.sample(DEVICES, 2 if mixed else 1))
    ]
    tiers = [
        {"name": "nvlink", "bytes_per_s": 3e11, "latency_s": 2e-6},
        {"name": "infiniband", "bytes_per_s": 2.5e10, "latency_s": 4e-6},
    ]
    spec = cluster_from_spec({"name": "small", "groups": groups, "tiers": tiers}).model_dump()
    for group in spec["groups"]:
        group["device"]["capacity_bytes"]["value"] = rng.choice((2.5e9, 4e9, 8e9, 3e10))
    return cluster_from_spec(spec)


def random_question(rng: random.Random) -> tuple[Situation, SearchRequest]:
    """A request and how to search it."""
    mixed = rng.random() < 0.3
    job = JobRequest(
        seq_len=rng.choice((512, 2048)),
        global_batch=rng.choice((8, 12, 24, 48)),
        engine=rng.choice(ENGINES[:3] if mixed else ENGINES),
        options=rng.choice(OPTIONS),
    )
    pins = rng.choice(PINS)
    search = SearchRequest(
        pins={} if "recompute" in pins and job.engine in WHOLE_LAYERS else pins,
        top_k=rng.choice((0, 2, 5)),
        gap=rng.choice((1e-3, 0.0, 0.02)),
        allow_at_risk=rng.random() < 0.2,
        prefer_simple=rng.random() < 0.2,
        vary={"grad_dtype": "bf16,fp32"} if rng.random() < 0.15 else {},
        run=RunRequest(tokens=1e9, price_per_device_hour_usd=2.0, deadline_s=1e7),
        max_seconds=120.0,
    )
    try:
        return situate(read_model(random_model(rng)), random_cluster(rng, mixed=mixed), job), search
    except BadInput:
        return random_question(rng)


def of_result(command: str, of: Situation, result: PlanResult) -> Iterator[Said]:
    """The plans of an answer, under the request that it says it answers."""
    counts_add_up(result)
    for place, plan in enumerate((result.best, *result.alternatives)):
        if plan is not None:
            yield f"{command}{' alternative' if place else ''}", changed(of, result.changes), plan
    if isinstance(result.front, Front):
        for point in result.front.points:
            yield (
                f"{command} front",
                changed(of, {**point.result.changes, "devices": point.devices}),
                point.prediction,
            )


def planned(of: Situation, search: SearchRequest, rng: random.Random) -> Iterator[Said]:
    """plan, and what stands in its file, read as the file of another machine."""
    plain = search.model_copy(update={"run": RunRequest()})
    result = make_plan(of, plain)
    yield from of_result("plan", of, result)
    if result.best is None:
        yield from infeasible(of, plain)
        return
    document = json.loads(json.dumps(plan_document(of, plain, result)))
    request = PlanRequest.model_validate(document["request"])
    read = resolve(request.model, request.cluster, request.job)
    again = evaluate(read, strategy_from_mapping(document["result"]["best"]["strategy"]))
    assert again.step_s == result.best.step_s
    yield "plan file", read, again
    now = changed(of, result.changes)
    yield from replanned(now, result.best, search, rng)
    yield from probed(now, result.best)
    for other in drawn(now, rng, 3):
        contrast = against(now, plain, result.best, parse_strategy(other.text()), 30.0)
        if contrast.other is not None:
            yield f"explain --against: {contrast.verdict}", now, contrast.other
    contrast = against(now, plain, result.best, parse_strategy(f"mbs={rng.choice((1, 2, 4))}"), 30.0)
    if contrast.other is not None and contrast.verdict != "does_not_fit":
        yield f"explain --against: {contrast.verdict}", now, contrast.other


def infeasible(of: Situation, search: SearchRequest) -> Iterator[Said]:
    """Of a request that nothing fits: the layout that is nearest, which the sentence and the changes speak of."""
    near = leanest(of, search, time.monotonic() + 20.0)
    if near is not None:
        yield "infeasible: nearest", of, near


def replanned(of: Situation, plan: Prediction, search: SearchRequest, rng: random.Random) -> Iterator[Said]:
    """Another number of nodes."""
    if of.cluster.is_mixed or search.vary:
        return
    node = of.cluster.groups[0].devices_per_node
    devices = node * rng.choice((1, 2, 4))
    loading = rng.choice(("any", "same"))
    fewer = changed(of, {"devices": devices})
    plain = search.model_copy(update={"run": RunRequest(), "explain": False})
    found = replan((of, plan.strategy), fewer, plain, loading, None)
    yield from of_result("replan", found.situation, found.result)


def probed(of: Situation, plan: Prediction) -> Iterator[Said]:
    """The probe on as many devices as the first group has in a node."""
    try:
        probe = derive_probe(of, plan, of.cluster.groups[0].devices_per_node)
    except BadInput:
        return
    yield "probe", probe.situation, probe.prediction


def swept(of: Situation, search: SearchRequest) -> Iterator[Said]:
    """A row of a sweep with its document."""
    plain = search.model_copy(update={"explain": False})
    row = solve_request(resolved_request(of, plain))
    assert row["status"] in ("optimal", "feasible", "infeasible"), row
    if "strategy" in row:
        request = PlanRequest.model_validate(row["document"]["request"])
        yield from read_back("sweep", resolve(request.model, request.cluster, request.job), row)


def sized(of: Situation, search: SearchRequest) -> Iterator[Said]:
    """Rows of a size table, for which nothing varies."""
    cluster = SpecCluster(spec=of.cluster.model_dump(mode="json"))
    layers = LayersModel(spec=of.model.model_dump(mode="json"))
    asked = SizeRequest(
        model=layers,
        clusters=(SizeCluster(name="small", cluster=cluster, is_open=False),),
        job=of.job_request,
        search=search.model_copy(update={"explain": False, "vary": {}}),
    )
    for row in size(asked, jobs=1).rows:
        if row.has_plan:
            yield from read_back("size", changed(of, {"devices": row.devices}), row.values)


def read_back(command: str, of: Situation, row: Any) -> Iterator[Said]:
    """The layout of a row, by its words; its step is the row's."""
    found = evaluate(of, parse_strategy(row["strategy"]))
    assert found.step_s == pytest.approx(row["step_s"], rel=SAME)
    yield command, of, found


def valued(of: Situation, search: SearchRequest, rng: random.Random) -> Iterator[Said]:
    """Another objective, or the front."""
    if of.cluster.is_mixed:
        return
    objective = rng.choice(OBJECTIVES)
    pareto = rng.random() < 0.3
    asked = {"objective": "step_time" if pareto else objective, "pareto": pareto, "explain": False}
    result = make_plan(of, search.model_copy(update=asked))
    yield from of_result("pareto" if pareto else objective, of, result)


def check(seed: int, commands: int) -> Counter[str]:
    """All that is said about one random question, re-checked; how often each command spoke."""
    rng, met = random.Random(seed), Counter()
    of, search = random_question(rng)
    said = [planned(of, search, rng)]
    said += rng.sample([swept(of, search), sized(of, search), valued(of, search, rng)], commands)
    for command, about, plan in (each for every in said for each in every):
        words = f"seed {seed}, {command}: {plan.strategy.text()}"
        context = Context.of(about, allow_at_risk=search.allow_at_risk)
        if plan.verdict == "fits" or (plan.verdict == "at_risk" and search.allow_at_risk):
            verify(context, plan)
        else:
            assert command.startswith(("explain", "infeasible", "probe")), words
            about.engine.check_strategy(context.facts, plan.strategy)
        met[command] += 1
    return met


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_said_of_a_small_request_verifies(seed):
    assert check(seed, commands=1)


@pytest.mark.matrix
@pytest.mark.parametrize("first", range(100, 300, 20))
def test_what_is_said_of_two_hundred_requests_verifies(first, record_property):
    met = sum((check(seed, commands=1) for seed in range(first, first + 20)), Counter())
    record_property("verified", ", ".join(f"{word} {number}" for word, number in sorted(met.items())))
    assert met.total() > 100
