"""Evaluations, checks, catalog and health as the contract words them."""

from typing import Any

import pytest
from fastapi.testclient import TestClient


def test_evaluations_answer_in_order(client: TestClient, question: dict[str, Any]) -> None:
    strategies = ["tp=1", "tp=3", {"tp": 2, "mbs": 1}, "warp=9", {"tp": True}]
    answer = client.post("/v1/evaluations", json={**question, "strategies": strategies})
    assert answer.status_code == 200
    items = answer.json()["items"]
    assert [list(item) for item in items] == [
        ["evaluation"],
        ["problem"],
        ["evaluation"],
        ["problem"],
        ["problem"],
    ]
    assert items[0]["evaluation"]["strategy"]["tp"] == 1
    assert items[2]["evaluation"]["strategy"]["tp"] == 2
    assert items[2]["evaluation"]["step_s"] > 0
    problem = items[1]["problem"]
    assert problem["type"] == "/problems/illegal_strategy"
    assert problem["errors"][0]["pointer"] == "/strategies/1"
    assert problem["errors"][0]["allowed"]


def test_a_published_config_is_taken_inline(client: TestClient, question: dict[str, Any]) -> None:
    config = client.get("/v1/catalog/models/llama-3.2-1b").json()["config"]
    inline = {**question, "model": {"kind": "huggingface", "config": config}, "strategies": ["tp=1"]}
    by_name = {**question, "strategies": ["tp=1"]}
    answers = [client.post("/v1/evaluations", json=body).json()["items"][0] for body in (inline, by_name)]
    assert answers[0]["evaluation"]["step_s"] == answers[1]["evaluation"]["step_s"]


def test_a_stranger_cannot_have_the_server_build_a_module(
    client: TestClient, question: dict[str, Any]
) -> None:
    """Architectures that only the transformers library knows are built on the command line, never over HTTP."""
    body = {**question, "model": {"kind": "huggingface", "config": {"model_type": "xlnet"}}}
    for path, more in (
        ("evaluations", {"strategies": ["tp=1"]}),
        ("checks", {"strategy": "tp=1"}),
        ("plans", {}),
    ):
        answer = client.post(f"/v1/{path}", json={**body, **more})
        assert answer.status_code == 422
        assert "xlnet" in answer.text


def test_a_check_answers_verdict_margin_and_regressions(client: TestClient, question: dict[str, Any]) -> None:
    answer = client.post("/v1/checks", json={**question, "strategy": "tp=1"})
    assert answer.status_code == 200
    report = answer.json()
    assert report["passed"] is True
    assert report["verdict"] == "fits"
    assert report["margin_bytes"] == report["memory"]["margin_bytes"]
    assert report["regressions"] == []


def test_a_check_compares_with_a_baseline(client: TestClient, question: dict[str, Any]) -> None:
    before = client.post("/v1/checks", json={**question, "strategy": "tp=1"}).json()
    before["step_s"] /= 2
    after = client.post(
        "/v1/checks", json={**question, "strategy": "tp=1,recompute=full", "baseline": before}
    )
    assert after.json()["passed"] is False
    (regression,) = after.json()["regressions"]
    assert regression["metric"] == "step_s"
    assert "strategy.recompute none -> full" in regression["cause"]


def test_an_illegal_strategy_is_refused_with_rule_and_nearest(
    client: TestClient, question: dict[str, Any]
) -> None:
    answer = client.post("/v1/checks", json={**question, "strategy": "tp=3"})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["type"] == "/problems/illegal_strategy"
    assert problem["errors"][0]["code"] == "world_size"
    assert problem["errors"][0]["allowed"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"plan_id": "plan_" + "0" * 32, "strategy": "tp=1"},
        {"plan_id": "../x"},
        {"strategy": "tp=1", "model": None},
    ],
)
def test_half_a_question_is_refused(
    client: TestClient, question: dict[str, Any], change: dict[str, Any]
) -> None:
    answer = client.post("/v1/checks", json={**question, **change})
    assert answer.status_code == 422


def test_an_unknown_plan_is_not_found(client: TestClient) -> None:
    answer = client.post("/v1/checks", json={"plan_id": "plan_" + "0" * 32})
    assert answer.status_code == 404


def test_a_useless_baseline_is_refused(client: TestClient, question: dict[str, Any]) -> None:
    answer = client.post("/v1/checks", json={**question, "strategy": "tp=1", "baseline": {"step_s": "fast"}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/baseline"


@pytest.mark.parametrize("kind", ["devices", "clusters", "models", "engines"])
def test_each_catalog_lists_and_describes(client: TestClient, kind: str) -> None:
    items = client.get(f"/v1/catalog/{kind}").json()["items"]
    assert items
    name = items[0]["name"]
    assert client.get(f"/v1/catalog/{kind}/{name}").json()["name"] == name


def test_a_device_carries_sources(client: TestClient) -> None:
    device = client.get("/v1/catalog/devices/h100-sxm-80gb").json()
    assert device["memory_bytes_per_s"]["source"]
    assert device["memory_bytes_per_s"]["kind"] == "datasheet"


@pytest.mark.parametrize(
    "path",
    ["/v1/catalog/planets", "/v1/catalog/devices/none", "/v1/catalog/devices/..%2F..%2Fx", "/v2/plans"],
)
def test_unknown_resources_are_not_found(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_another_method_is_not_allowed(client: TestClient) -> None:
    answer = client.put("/v1/evaluations")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["type"] == "/problems/method_not_allowed"


def test_health_and_profiles(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").status_code == 200
    assert len(client.get("/v1/profiles").json()["profiles_sha256"]) == 64


def test_the_schema_names_every_path_of_this_version(client: TestClient) -> None:
    paths = set(client.get("/openapi.json").json()["paths"])
    assert {
        "/v1/plans",
        "/v1/plans/{plan_id}",
        "/v1/evaluations",
        "/v1/checks",
        "/v1/catalog/{kind}",
        "/v1/catalog/{kind}/{name}",
        "/v1/profiles",
        "/healthz",
        "/readyz",
    } <= paths


@pytest.mark.parametrize("path", ["/v1/catalog/devices", "/v1/catalog/models/llama-3.2-1b", "/v1/profiles"])
def test_what_is_known_is_not_sent_twice(client: TestClient, path: str) -> None:
    first = client.get(path)
    tag = first.headers["etag"]
    again = client.get(path, headers={"if-none-match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200
