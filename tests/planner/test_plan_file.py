"""The plan file says everything, comes back as it was written, and refuses what it is not."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import BadInput
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy, strategy_from_mapping
from planner.answers import Certificate, PlanResult
from planner.evaluation import evaluate
from planner.plan_file import parse_plan, plan_document, write_plan
from planner.request import CatalogModel, PresetCluster, SearchRequest
from planner.situation import Situation, resolve

SEARCH = SearchRequest(seed=7, pins={"tp": 2})


@pytest.fixture(scope="module")
def situation() -> Situation:
    """A small job on one node."""
    job = JobRequest(seq_len=2048, global_batch=32, options={"engine.attention": "flash"})
    return resolve(CatalogModel(name="deepseek-v3"), PresetCluster(name="dgx-h100", devices=2048), job)


@pytest.fixture(scope="module")
def document(situation: Situation) -> dict[str, Any]:
    """A plan document around one evaluated strategy, through JSON."""
    best = evaluate(situation, parse_strategy("tp=8,pp=8,ep=32,dp=32"))
    certificate = Certificate("step_time", float("nan"), None, 1, {}, 0, 0, 1, 0, {"tp": [1, 2]}, 0.1)
    result = PlanResult("feasible", best, (), certificate)
    text = json.dumps(plan_document(situation, SEARCH, result), allow_nan=False)
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_document_has_the_keys_of_the_contract(document: dict[str, Any]) -> None:
    assert set(document) == {"schema_version", "id", "request", "result", "made_with"}
    assert {"model", "cluster", "job", "search"} <= set(document["request"])
    made = document["made_with"]
    assert set(made) == {"planner_version", "profiles_sha256", "engine_versions", "seed", "created_at"}
    assert made["seed"] == 7
    assert list(made["engine_versions"]) == ["megatron"]
    assert re.fullmatch(r"plan_[0-9a-f]{32}", document["id"])


def test_numbers_that_are_not_finite_are_null(document: dict[str, Any]) -> None:
    assert document["result"]["certificate"]["lower_bound_s"] is None


def test_the_question_comes_back_as_it_was(situation: Situation, document: dict[str, Any]) -> None:
    plan = parse_plan(document)
    again = resolve(plan.request.model, plan.request.cluster, plan.request.job)
    assert again.model == situation.model
    assert again.cluster == situation.cluster
    assert again.job == situation.job
    assert plan.request.search == SEARCH


def test_the_answer_can_be_evaluated_again(situation: Situation, document: dict[str, Any]) -> None:
    plan = parse_plan(document)
    again = evaluate(situation, strategy_from_mapping(plan.best_strategy()))
    assert again.step_s == document["result"]["best"]["step_s"]


def test_a_document_is_written_whole(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old", encoding="utf-8")
    write_plan(path, document)
    assert json.loads(path.read_text(encoding="utf-8")) == document
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_a_place_that_cannot_be_written_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        write_plan(tmp_path / "none" / "plan.json", document)
    with pytest.raises(BadInput, match="cannot be written"):
        write_plan(tmp_path, document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 2}, "schema 2"),
        ({"schema_version": True}, "schema True"),
        ({"result": None}, "without a result"),
        ({"request": {}}, "request.model"),
        ({"request": None}, "request"),
    ],
)
def test_another_document_is_refused(document: dict[str, Any], change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_plan({**document, **change})


def test_an_infeasible_plan_has_no_strategy(document: dict[str, Any]) -> None:
    plan = parse_plan({**document, "result": {"status": "infeasible", "best": None}})
    with pytest.raises(BadInput, match="infeasible"):
        plan.best_strategy()


def test_what_is_no_file_is_written_into_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    try:
        write_plan(pipe, {"a": 1})
        assert json.loads(os.read(end, 1000)) == {"a": 1}
    finally:
        os.close(end)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    file, link = tmp_path / "file.json", tmp_path / "link.json"
    file.write_text("old", encoding="utf-8")
    link.symlink_to(file)
    write_plan(link, {"a": 1})
    assert link.is_symlink()
    assert json.loads(file.read_text(encoding="utf-8")) == {"a": 1}
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_a_name_that_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be written .*choose another"):
        write_plan(tmp_path / ("x" * 5000), {"a": 1})
    assert list(tmp_path.iterdir()) == []
