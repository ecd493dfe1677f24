"""The answer that the page opens with is still about what the planner says."""

import json
from importlib.resources import files

import pytest

from cost_models.specs.strategy import strategy_from_mapping
from planner.evaluation import evaluate
from planner.report.example import FIRST_OPERATIONS, QUESTION
from planner.request import PlanRequest
from planner.situation import resolve

AGAIN = "python -m planner.report.example api/page/static/example.json"


def test_the_first_answer_is_fresh() -> None:
    stored = json.loads((files("api.page") / "static" / "example.json").read_text())
    assert stored["request"] == QUESTION
    request = PlanRequest.model_validate(QUESTION)
    situation = resolve(request.model, request.cluster, request.job, reader="plain")
    best = stored["plan"]["result"]["best"]
    now = evaluate(situation, strategy_from_mapping(best["strategy"]))
    assert now.step_s == pytest.approx(best["step_s"], rel=0.01), f"make it again: {AGAIN}"
    assert now.verdict == best["verdict"], f"make it again: {AGAIN}"
    assert stored["plan"]["result"]["status"] == "optimal"
    assert len(stored["views"]["0"]["timeline"]["columns"]["rank"]) == FIRST_OPERATIONS
    assert all(event["lower_bound_s"] <= now.step_s * 1.001 for event in stored["events"])
