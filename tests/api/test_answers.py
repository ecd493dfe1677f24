"""Every answer holds its closed schema: all of a plan, an explanation, a comparison, a size table."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from api.answers import ComparisonBody, ContrastBody, ExplanationBody, SizesBody, UnsolvedBody
from api.answers.plans import ResultBody
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.answers import finite
from planner.compare import compare, side
from planner.evaluation import evaluate
from planner.explain import against, explain
from planner.make_plan import make_plan
from planner.request import CatalogModel, PresetCluster, RunRequest, SearchRequest
from planner.situation import Situation, resolve
from planner.sizing import SizeCluster, SizeRequest, size

MODEL = CatalogModel(kind="catalog", name="pythia-70m")
JOB = JobRequest(seq_len=2048, global_batch=16)
PINS = {"tp": 1, "mbs": 1, "cp": 1}


def situation(devices: int = 8, **job: Any) -> Situation:
    cluster = PresetCluster(kind="preset", name="dgx-h100", devices=devices)
    return resolve(MODEL, cluster, JOB.model_copy(update=job))


def holds(kind: type[BaseModel], found: Mapping[str, object]) -> None:
    """The object is one of this schema, no key more or less."""
    kind.model_validate(finite(dict(found)), strict=False)


@pytest.mark.parametrize(
    "search",
    [
        SearchRequest(
            pins=PINS, top_k=3, run=RunRequest(tokens=1e10, deadline_s=1e6, price_per_device_hour_usd=2.0)
        ),
        SearchRequest(pins={**PINS, "pp": 1, "zero": 1}, pareto=True, run=RunRequest(tokens=1e10)),
        SearchRequest(
            pins=PINS, objective="cost", run=RunRequest(tokens=1e10, price_per_device_hour_usd=2.0)
        ),
        SearchRequest(pins=PINS, objective="devices", run=RunRequest(tokens=1e10, deadline_s=1e7)),
        SearchRequest(pins={"tp": 1, "pp": 1, "cp": 1}, objective="batch"),
        SearchRequest(pins={**PINS, "pp": 1, "zero": 1}, objective="memory"),
    ],
    ids=lambda search: f"{search.objective}{'-pareto' if search.pareto else ''}",
)
def test_a_plan_of_any_objective(search: SearchRequest) -> None:
    found = make_plan(situation(), search).to_json()
    assert found["best"]
    assert ("front" in found) == search.pareto
    holds(ResultBody, found)


def test_an_infeasible_plan_and_why() -> None:
    found = make_plan(situation(1, seq_len=4_194_304, global_batch=1), SearchRequest(max_seconds=5)).to_json()
    assert found["status"] == "infeasible"
    assert found["relaxations"]
    holds(ResultBody, found)
    holds(UnsolvedBody, {key: found[key] for key in ("status", "reason", "relaxations", "certificate")})


def test_an_explanation_with_searched_neighbours_and_runners_up() -> None:
    asked = situation()
    found = explain(
        asked, SearchRequest(), parse_strategy("tp=2,mbs=1"), [parse_strategy("tp=4,mbs=1")], 2.0
    ).to_json()
    assert found["axes"] and found["runners_up"] and found["sensitivity"]
    holds(ExplanationBody, found)


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ("tp=3", "illegal"),
        ("tp=2,mbs=1", "same"),
        ("tp=8,pp=1,mbs=1,stages=6", "slower"),
        ("mbs=16", "does_not_fit"),
    ],
)
def test_a_contrast_of_any_verdict(other: str, verdict: str) -> None:
    asked = situation(seq_len=65_536) if verdict == "does_not_fit" else situation()
    plan = evaluate(asked, parse_strategy("tp=2,mbs=1"))
    contrast = against(asked, SearchRequest(), plan, parse_strategy(other), 1.0)
    holds(ContrastBody, {"plan": plan.to_json(), "against": contrast.to_json()})


def test_a_comparison_across_questions() -> None:
    first = side(situation(), parse_strategy("tp=2,pp=2,mbs=1"))
    second = side(situation(16), parse_strategy("tp=4,mbs=1"))
    holds(ComparisonBody, compare(first, second).to_json())


@pytest.mark.parametrize("within_s", [None, 1e-6, 0.5])
def test_a_size_table_whole_and_cut_short(within_s: float | None) -> None:
    cluster = PresetCluster(kind="preset", name="dgx-h100", devices=16)
    refused = PresetCluster(kind="preset", name="dgx-1", devices=8)
    clusters = (SizeCluster(name="ours", cluster=cluster), SizeCluster(name="old", cluster=refused))
    search = SearchRequest(pins=PINS, run=RunRequest(tokens=1e9, deadline_s=1e7))
    request = SizeRequest(model=MODEL, clusters=clusters, job=JOB, search=search, devices=(8, 16))
    found = size(request, 1, within_s=within_s).to_json()
    holds(SizesBody, found)
    if within_s is None:
        assert found["complete"]
        assert found["fewest"]
    elif within_s < 1e-3:
        assert not found["complete"]
        # Two counts of one cluster; the other refuses bf16 and is told without a search.
        assert [(one["cluster"], one["devices"]) for one in found["left_out"]] == [("ours", 8), ("ours", 16)]
