"""What one key made is not there for another: every call that names a plan, and lists, idempotency and questions."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.keyring import create_key

Keys = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def shared(serve: Any) -> Iterator[tuple[TestClient, Keys]]:
    """A server with keys of two teams, one of them with two, and an admin's."""
    with serve("answer", host="0.0.0.0") as client:
        database = client.app.state.database
        given = {
            "mine": ("a", "plan"),
            "ours": ("a", "plan"),
            "theirs": ("b", "run"),
            "admin": ("c", "admin"),
        }
        made = {who: create_key(database, *about)[1] for who, about in given.items()}
        yield client, {who: {"authorization": f"Bearer {key}"} for who, key in made.items()}


QUESTION = {
    "model": {"kind": "catalog", "name": "llama-3.2-1b"},
    "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8},
    "job": {"seq_len": 2048, "global_batch": 32},
}


@pytest.fixture(scope="module")
def plan_id(shared: tuple[TestClient, Keys]) -> str:
    """A plan of the first team."""
    client, keys = shared
    answer = client.post("/v1/plans", json=QUESTION, headers={**keys["mine"], "prefer": "wait=20"})
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["id"]
    return found


CALLS = (
    ("GET", "/v1/plans/{id}", None),
    ("GET", "/v1/plans/{id}/events", None),
    ("PATCH", "/v1/plans/{id}", {"name": "taken"}),
    ("POST", "/v1/plans/{id}/cancel", None),
    ("DELETE", "/v1/plans/{id}", None),
    ("POST", "/v1/checks", {"plan_id": "{id}"}),
    ("POST", "/v1/explanations", {"plan_id": "{id}"}),
    ("POST", "/v1/simulations", {"plan_id": "{id}"}),
    ("POST", "/v1/exports", {"plan_id": "{id}", "format": "megatron"}),
    ("POST", "/v1/comparisons", {"first": {"plan_id": "{id}"}, "second": {"strategy": "tp=1"}}),
)


def put(value: Any, plan_id: str) -> Any:
    """A body that names the plan."""
    if isinstance(value, dict):
        return {key: put(inner, plan_id) for key, inner in value.items()}
    return plan_id if value == "{id}" else value


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
def test_a_plan_of_others_is_not_found(
    shared: tuple[TestClient, Keys], plan_id: str, method: str, path: str, body: Any
) -> None:
    client, keys = shared
    headers = {**keys["theirs"], "if-match": "*"}
    answer = client.request(method, path.format(id=plan_id), json=put(body, plan_id), headers=headers)
    assert answer.status_code == 404, answer.text
    # The same words as for a plan that never was: nothing tells that it is there.
    never = "plan_" + "0" * 32
    unknown = client.request(method, path.format(id=never), json=put(body, never), headers=headers)
    assert unknown.json()["detail"] == answer.json()["detail"]


def test_a_run_cannot_be_launched_from_a_plan_of_others(
    shared: tuple[TestClient, Keys], plan_id: str
) -> None:
    client, keys = shared
    answer = client.post(f"/v1/plans/{plan_id}/runs", json={"launcher": "local"}, headers=keys["theirs"])
    assert answer.status_code in (404, 409, 422)
    assert plan_id not in answer.text


def test_lists_hold_what_is_visible(shared: tuple[TestClient, Keys], plan_id: str) -> None:
    client, keys = shared
    seen = {
        who: plan_id in {item["id"] for item in client.get("/v1/plans", headers=header).json()["items"]}
        for who, header in keys.items()
    }
    assert seen == {"mine": True, "ours": True, "theirs": False, "admin": True}


def test_keys_of_one_name_share_their_plans(shared: tuple[TestClient, Keys], plan_id: str) -> None:
    client, keys = shared
    for who in ("ours", "admin"):
        assert client.get(f"/v1/plans/{plan_id}", headers=keys[who]).status_code == 200
    renamed = client.patch(
        f"/v1/plans/{plan_id}", json={"name": "x"}, headers={**keys["ours"], "if-match": "*"}
    )
    assert renamed.status_code == 200


def test_an_idempotency_key_is_each_keys_own(shared: tuple[TestClient, Keys]) -> None:
    client, keys = shared
    ids = set()
    for who in ("mine", "theirs"):
        headers = {**keys[who], "idempotency-key": "once", "prefer": "wait=0"}
        first = client.post("/v1/plans", json=QUESTION, headers=headers)
        again = client.post("/v1/plans", json=QUESTION, headers=headers)
        assert first.json()["id"] == again.json()["id"]
        assert again.headers["idempotency-replayed"] == "true"
        ids.add(first.json()["id"])
    assert len(ids) == 2
