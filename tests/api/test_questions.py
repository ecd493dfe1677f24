"""Explanations, comparisons, simulations, exports and inspections: the objects of the command line, over HTTP."""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from planner.cli.group import planner

STRATEGY = "tp=2,pp=2,mbs=1"
OPTIONS = ["--model", "llama-3.2-1b", "--cluster", "dgx-h100:8", "--seq-len", "2048", "--global-batch", "32"]


def of_command(*arguments: str) -> Any:
    """The JSON object of a command."""
    answer = CliRunner().invoke(planner, [*arguments, "--json"])
    assert answer.exit_code in (0, 1), answer.output
    return json.loads(answer.stdout)


@pytest.fixture
def stated(question: dict[str, Any]) -> dict[str, Any]:
    """The question with a strategy."""
    return {**question, "strategy": STRATEGY}


def test_a_simulation_is_that_of_the_command(client: TestClient, stated: dict[str, Any]) -> None:
    answer = client.post("/v1/simulations", json=stated).json()
    timeline = answer.pop("timeline")
    assert answer == of_command("simulate", *OPTIONS, "--strategy", STRATEGY)
    # dp = 8 / (2 x 2) = 2, so 32 / 2 = 16 micro-batches: 16 x 2 ranks x (forward, backward) = 64 operations.
    assert (timeline["shown"], timeline["left_out"], timeline["gap_s"]) == (64, 0, None)
    assert {len(column) for column in timeline["operations"].values()} == {64}
    assert max(timeline["operations"]["end_s"]) == answer["pipeline_s"]


@pytest.mark.parametrize(("most", "left_out"), [(10, 54), (1, 63), (0, 64), (64, 0)])
def test_operations_beyond_the_number_asked_for_are_counted(
    client: TestClient, stated: dict[str, Any], most: int, left_out: int
) -> None:
    timeline = client.post("/v1/simulations", json={**stated, "max_operations": most}).json()["timeline"]
    assert (timeline["shown"], timeline["left_out"]) == (most, left_out)
    assert (timeline["gap_s"] is None) == (left_out == 0)
    starts = timeline["operations"]["start_s"]
    assert starts == sorted(starts)


def test_a_step_of_too_many_operations_is_refused(client: TestClient, stated: dict[str, Any]) -> None:
    # 10,000,000 sequences of one micro-batch each on 8 ranks: 160,000,000 operations.
    job = {"seq_len": 128, "global_batch": 10_000_000}
    answer = client.post("/v1/simulations", json={**stated, "job": job, "strategy": "pp=8,mbs=1"})
    assert answer.status_code == 422
    assert "160,000,000 operations" in answer.json()["detail"]


def test_an_export_has_relative_paths_and_losses(client: TestClient, stated: dict[str, Any]) -> None:
    answer = client.post("/v1/exports", json={**stated, "format": "megatron", "version": "0.14"}).json()
    local = of_command(
        "export", *OPTIONS, "--engine", "megatron@0.14", "--strategy", STRATEGY, "--to", "megatron"
    )
    assert {each["path"]: each["content"] for each in answer["files"]} == local["files"]
    assert (answer["losses"], answer["version"]) == (local["losses"], "0.14")
    assert not any(each["path"].startswith("/") or ".." in each["path"] for each in answer["files"])


@pytest.mark.parametrize(
    ("more", "pointer"),
    [({"format": "nope"}, "/format"), ({"format": "megatron", "version": "9"}, "/version")],
)
def test_unknown_formats_and_versions_are_refused(
    client: TestClient, stated: dict[str, Any], more: dict[str, Any], pointer: str
) -> None:
    answer = client.post("/v1/exports", json={**stated, **more})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_a_comparison_is_that_of_the_command(client: TestClient, stated: dict[str, Any]) -> None:
    answer = client.post("/v1/comparisons", json={"first": stated, "second": {"strategy": "tp=8"}})
    assert answer.json() == of_command("compare", STRATEGY, "tp=8", *OPTIONS)


def test_two_bare_strategies_are_refused(client: TestClient) -> None:
    body = {"first": {"strategy": "tp=8"}, "second": {"strategy": "tp=4"}}
    assert client.post("/v1/comparisons", json=body).status_code == 422


def test_an_inspection_is_that_of_the_command(client: TestClient, question: dict[str, Any]) -> None:
    answer = client.post("/v1/inspections", json={"model": question["model"], "seq_len": 512})
    assert answer.json() == of_command("inspect", "--model", "llama-3.2-1b", "--seq-len", "512")


def test_an_explanation_comes_from_a_process_of_its_own(client: TestClient, stated: dict[str, Any]) -> None:
    # The rule is broken before any search, so that the answer takes no solver.
    body = {**stated, "against": "tp=3", "max_seconds": 1}
    answer = client.post("/v1/explanations", json=body).json()
    local = of_command("explain", *OPTIONS, "--strategy", STRATEGY, "--against", "tp=3", "--max-seconds", "1")
    assert answer == local
    assert answer["against"]["verdict"] == "illegal"


def test_a_plan_without_a_strategy_says_why(client: TestClient, question: dict[str, Any]) -> None:
    result = {"status": "infeasible", "best": None, "reason": "no room", "relaxations": [], "certificate": {}}
    plan = {"schema_version": 1, "id": "plan_x", "request": question, "result": result}
    answer = client.post("/v1/explanations", json={"plan": plan})
    assert answer.json() == {key: result[key] for key in ("status", "reason", "relaxations", "certificate")}
    refused = client.post("/v1/exports", json={"plan": plan, "format": "megatron"})
    assert refused.status_code == 422
    assert "holds no strategy" in refused.json()["detail"]


@pytest.mark.parametrize("path", ["explanations", "simulations", "exports"])
@pytest.mark.parametrize(
    "body",
    [{}, {"plan": {}, "plan_id": "plan_" + "0" * 32}, {"strategy": "tp=1"}, {"plan": {"schema_version": 2}}],
)
def test_half_a_source_is_refused(client: TestClient, path: str, body: dict[str, Any]) -> None:
    more = {"format": "megatron"} if path == "exports" else {}
    assert client.post(f"/v1/{path}", json={**body, **more}).status_code == 422


@pytest.mark.parametrize("path", ["explanations", "simulations", "exports"])
def test_an_unknown_plan_is_not_found(client: TestClient, path: str) -> None:
    more = {"format": "megatron"} if path == "exports" else {}
    assert client.post(f"/v1/{path}", json={"plan_id": "plan_" + "0" * 32, **more}).status_code == 404
