"""Plans: the envelope, entity tags, early refusals, what a search process refuses."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.routes.plans import wait_of
from api.store.changes import dump
from planner.request import PlanRequest

WAIT = {"prefer": "wait=30"}


def test_a_plan_is_answered_whole_and_read_again(answering: TestClient, question: dict[str, Any]) -> None:
    answer = answering.post("/v1/plans", json={**question, "name": "mine", "tags": ["a"]}, headers=WAIT)
    assert answer.status_code == 200
    plan = answer.json()
    assert plan["state"] == "succeeded"
    assert (plan["name"], plan["tags"], plan["attempt"], plan["problem"]) == ("mine", ["a"], 1, None)
    assert plan["result"]["status"] == "infeasible"
    assert plan["made_with"] == {"planner_version": "0"}
    assert plan["progress"] == {
        "lower_bound_s": None,
        "best_step_s": None,
        "gap": None,
        "meshes_done": 5,
        "meshes_total": 7,
    }
    assert plan["created_at"] <= plan["started_at"] <= plan["ended_at"]
    location = answer.headers["location"]
    assert location == plan["links"]["self"] == f"/v1/plans/{plan['id']}"
    again = answering.get(location)
    assert again.content == answer.content
    assert again.headers["etag"] == answer.headers["etag"]


def test_the_search_is_given_the_resolved_request(answering: TestClient, question: dict[str, Any]) -> None:
    # The fake search answers with the request that it was given.
    plan = answering.post("/v1/plans", json=question, headers=WAIT).json()
    request = PlanRequest.model_validate(plan["request"])
    assert (request.model.kind, request.cluster.kind) == ("layers", "spec")


def test_an_unchanged_plan_is_not_sent_again(answering: TestClient, question: dict[str, Any]) -> None:
    created = answering.post("/v1/plans", json=question, headers=WAIT)
    path, etag = created.headers["location"], created.headers["etag"]
    for condition in (etag, f'"other", W/{etag}', "*"):
        answer = answering.get(path, headers={"if-none-match": condition})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
    assert answering.get(path, headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("plan_id", ["plan_" + "b" * 32, "x", "%2e%2e", "a" * 5000])
def test_an_unknown_plan_is_not_found(client: TestClient, plan_id: str) -> None:
    assert client.get(f"/v1/plans/{plan_id}").status_code == 404
    assert client.get(f"/v1/plans/{plan_id}/events").status_code == 404
    assert client.post(f"/v1/plans/{plan_id}/cancel").status_code == 404
    assert client.delete(f"/v1/plans/{plan_id}").status_code == 404
    patched = client.patch(f"/v1/plans/{plan_id}", json={"name": "a"}, headers={"if-match": "*"})
    assert patched.status_code == 404


@pytest.mark.parametrize(
    ("search", "pointer"),
    [
        ({"run": {"deadline_s": 60}}, "/search/run/tokens"),
        ({"objective": "speed"}, "/search/objective"),
        ({"pins": {"warp": 9}}, "/search/pins"),
        ({"pins": {"tp": 0}}, "/search/pins"),
        ({"bans": ["schedule=fast"]}, "/search/bans"),
        ({"top_k": -1}, "/search/top_k"),
        ({"top_k": True}, "/search/top_k"),
        ({"gap": 1.5}, "/search/gap"),
        ({"max_seconds": 0}, "/search/max_seconds"),
        ({"max_seconds": 100_000}, "/search/max_seconds"),
        ({"max_seconds": 601}, "/search/max_seconds"),
        ({"seed": 2**40}, "/search/seed"),
    ],
)
def test_a_search_that_cannot_be_is_refused_before_it_is_queued(
    client: TestClient, question: dict[str, Any], search: dict[str, Any], pointer: str
) -> None:
    answer = client.post("/v1/plans", json={**question, "search": search})
    assert answer.status_code == 422, answer.text
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert client.get("/v1/plans").json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("query", "pointer", "says"),
    [
        ("limit=0", "/limit", "/limit: Input should be greater than or equal to 1"),
        ("limit=x", "/limit", "/limit: Input should be a valid integer"),
        ("state=done", "/state", "/state: Input should be 'queued', 'running'"),
    ],
)
def test_a_wrong_parameter_of_the_query_is_pointed_at(
    client: TestClient, query: str, pointer: str, says: str
) -> None:
    found = client.get(f"/v1/plans?{query}")
    assert found.status_code == 422
    assert found.json()["errors"][0]["pointer"] == pointer
    assert found.json()["detail"].startswith(says)


def test_numbers_that_are_not_finite_are_null() -> None:
    assert json.loads(dump({"id": "a", "x": float("nan"), "y": [float("inf")]})) == {
        "id": "a",
        "x": None,
        "y": [None],
    }


@pytest.mark.parametrize(
    ("prefer", "wait_s"),
    [
        (None, 2.0),
        ("wait=0", 0.0),
        ("wait=7.5", 7.5),
        ("respond-async, wait=10", 10.0),
        ('Wait="3"', 3.0),
        ("wait=100000", 30.0),
        ("wait=-1", 2.0),
        ("wait=soon", 2.0),
        ("await=9", 2.0),
        ("return=minimal", 2.0),
    ],
)
def test_how_long_to_wait_is_read_from_prefer(prefer: str | None, wait_s: float) -> None:
    assert wait_of(prefer) == wait_s
