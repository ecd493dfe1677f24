"""Every answer holds its closed schema, and is read back whole: a plan, an explanation, a comparison, a size table."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from api.answers import ComparisonBody, ContrastBody, ExplanationBody, SizesBody, UnsolvedBody
from api.answers.plans import ResultBody
from cost_models.errors import BadInput
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.answered.explanations import comparison, contrast, explanation
from planner.answered.sizes import size_report
from planner.answers import finite
from planner.compare import compare, side
from planner.evaluation import evaluate
from planner.explain import against, explain
from planner.make_plan import make_plan
from planner.render.explain import show_comparison, show_contrast, show_explanation
from planner.render.size import show_size
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
        SearchRequest(
            pins={**PINS, "pp": 1, "zero": 1, "recompute": "none"}, pareto=True, run=RunRequest(tokens=1e10)
        ),
        SearchRequest(
            pins=PINS, objective="cost", run=RunRequest(tokens=1e10, price_per_device_hour_usd=2.0)
        ),
        SearchRequest(pins={"tp": 1, "pp": 1, "cp": 1, "dp": 8, "zero": 1}, objective="batch"),
        SearchRequest(pins={**PINS, "pp": 1, "zero": 1, "recompute": "none"}, objective="memory"),
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


def shown(capsys: pytest.CaptureFixture[str], show: Callable[..., None], *arguments: Any) -> str:
    """What people read of an answer."""
    capsys.readouterr()
    show(*arguments)
    return capsys.readouterr().out


def test_an_explanation_with_searched_neighbours_and_runners_up(capsys: pytest.CaptureFixture[str]) -> None:
    asked = situation()
    made = explain(asked, SearchRequest(), parse_strategy("tp=2,mbs=1"), [parse_strategy("tp=4,mbs=1")], 0.5)
    found = made.to_json()
    assert found["axes"] and found["runners_up"] and found["sensitivity"]
    holds(ExplanationBody, found)
    read = explanation(asked, found)
    assert read.to_json() == found
    assert shown(capsys, show_explanation, asked, read) == shown(capsys, show_explanation, asked, made)


@pytest.mark.parametrize(
    ("other", "verdict"),
    [
        ("tp=3", "illegal"),
        ("tp=2,mbs=1", "same"),
        ("tp=8,pp=1,mbs=1,stages=6", "slower"),
        ("mbs=512,dp=8", "does_not_fit"),
    ],
)
def test_a_contrast_of_any_verdict(capsys: pytest.CaptureFixture[str], other: str, verdict: str) -> None:
    asked = situation(seq_len=65_536, global_batch=4096) if verdict == "does_not_fit" else situation()
    plan = evaluate(asked, parse_strategy("tp=2,mbs=1"))
    made = against(asked, SearchRequest(), plan, parse_strategy(other), 0.5)
    assert made.verdict == verdict
    found = {"plan": plan.to_json(), "against": made.to_json()}
    holds(ContrastBody, found)
    read = contrast(asked, found)
    assert read.to_json() == made.to_json()
    assert shown(capsys, show_contrast, asked, read) == shown(capsys, show_contrast, asked, made)


def test_a_comparison_across_questions(capsys: pytest.CaptureFixture[str]) -> None:
    asked = situation(), situation(16)
    made = compare(
        side(asked[0], parse_strategy("tp=2,pp=2,mbs=1")), side(asked[1], parse_strategy("tp=4,mbs=1"))
    )
    found = made.to_json()
    holds(ComparisonBody, found)
    read = comparison(asked, found)
    assert read.to_json() == found
    names = ("a", "b")
    assert shown(capsys, show_comparison, read, names) == shown(capsys, show_comparison, made, names)


@pytest.mark.parametrize("within_s", [None, 1e-6])
def test_a_size_table_whole_and_cut_short(capsys: pytest.CaptureFixture[str], within_s: float | None) -> None:
    cluster = PresetCluster(kind="preset", name="dgx-h100", devices=16)
    refused = PresetCluster(kind="preset", name="dgx-1", devices=8)
    clusters = (SizeCluster(name="ours", cluster=cluster), SizeCluster(name="old", cluster=refused))
    search = SearchRequest(pins=PINS, run=RunRequest(tokens=1e9, deadline_s=1e7))
    request = SizeRequest(model=MODEL, clusters=clusters, job=JOB, search=search, devices=(8, 16))
    made = size(request, 1, within_s=within_s)
    found = made.to_json()
    holds(SizesBody, found)
    read = size_report(search, found)
    assert read.to_json() == found
    assert shown(capsys, show_size, read) == shown(capsys, show_size, made)
    if within_s is None:
        assert found["complete"]
        assert found["fewest"]
    else:
        assert not found["complete"]
        # Two counts of one cluster; the other refuses bf16 and is told without a search.
        assert [(one["cluster"], one["devices"]) for one in made.left_out] == [("ours", 8), ("ours", 16)]


@pytest.mark.parametrize("more", [{"objective": "cost"}, {"pareto": True}])
def test_a_size_table_of_another_objective_is_refused(more: dict[str, Any]) -> None:
    search = SearchRequest(run=RunRequest(tokens=1e9), **more)
    clusters = (SizeCluster(name="ours", cluster=PresetCluster(kind="preset", name="dgx-h100", devices=16)),)
    with pytest.raises(BadInput, match="each row is the fastest plan"):
        size(SizeRequest(model=MODEL, clusters=clusters, job=JOB, search=search))
