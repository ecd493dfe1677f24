"""Plans: the envelope, entity tags, early refusals, bounded queues, the search process."""

import asyncio
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

import api.work
from api.app import create_app
from api.errors import Problem
from api.settings import Settings
from api.store import PlanStore, StoredPlan
from api.work import Gate, Work
from planner.request import PlanRequest

STATES = {"queued", "running", "succeeded", "failed", "cancelled"}


def document_of(request: str, status: str = "infeasible") -> dict[str, Any]:
    """A plan document as a search process would answer it."""
    certificate = {"lower_bound_s": None, "gap": None, "meshes_total": 7, "meshes_open": 2}
    return {
        "schema_version": 1,
        "id": "plan_" + "a" * 32,
        "request": json.loads(request),
        "result": {"status": status, "best": None, "alternatives": [], "certificate": certificate},
        "made_with": {"planner_version": "0"},
    }


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requests that reached a search process, which is replaced by an immediate answer."""
    seen: list[str] = []

    async def answer(request: str) -> dict[str, Any]:
        seen.append(request)
        return {"document": document_of(request)}

    monkeypatch.setattr(api.work, "_run_worker", answer)
    return seen


def test_a_plan_is_answered_whole_and_read_again(
    client: TestClient, question: dict[str, Any], asked: list[str]
) -> None:
    answer = client.post(
        "/v1/plans", json={**question, "name": "mine", "tags": ["a"]}, headers={"prefer": "wait=30"}
    )
    assert answer.status_code == 200
    plan = answer.json()
    assert plan["state"] == "succeeded"
    assert plan["state"] in STATES
    assert (plan["name"], plan["tags"], plan["attempt"], plan["problem"]) == ("mine", ["a"], 1, None)
    assert plan["result"]["status"] == "infeasible"
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
    again = client.get(location)
    assert again.content == answer.content
    assert again.headers["etag"] == answer.headers["etag"]


def test_the_search_is_given_the_resolved_request(
    client: TestClient, question: dict[str, Any], asked: list[str]
) -> None:
    client.post("/v1/plans", json=question)
    request = PlanRequest.model_validate_json(asked[0])
    assert (request.model.kind, request.cluster.kind) == ("layers", "spec")


def test_an_unchanged_plan_is_not_sent_again(
    client: TestClient, question: dict[str, Any], asked: list[str]
) -> None:
    created = client.post("/v1/plans", json=question)
    path, etag = created.headers["location"], created.headers["etag"]
    for condition in (etag, f'"other", W/{etag}', "*"):
        answer = client.get(path, headers={"if-none-match": condition})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("plan_id", ["plan_" + "b" * 32, "x", "%2e%2e", "a" * 5000])
def test_an_unknown_plan_is_not_found(client: TestClient, plan_id: str) -> None:
    assert client.get(f"/v1/plans/{plan_id}").status_code == 404


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
def test_a_search_that_cannot_be_is_refused_first(
    client: TestClient, question: dict[str, Any], asked: list[str], search: dict[str, Any], pointer: str
) -> None:
    answer = client.post("/v1/plans", json={**question, "search": search})
    assert answer.status_code == 422, answer.text
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert asked == []


def test_what_the_search_refuses_is_answered_as_a_problem(
    client: TestClient, question: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(request: str) -> dict[str, Any]:
        detail = "no such pin; use another"
        return {
            "problem": {"code": "invalid_request", "detail": detail, "pointer": "/search/pins", "allowed": []}
        }

    monkeypatch.setattr(api.work, "_run_worker", refuse)
    answer = client.post("/v1/plans", json=question)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/search/pins"


def test_a_search_that_overruns_is_ended(question: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(request: str) -> dict[str, Any]:
        await asyncio.sleep(60)
        raise AssertionError("not ended")

    monkeypatch.setattr(api.work, "_run_worker", hang)
    app = create_app(Settings(search_grace_s=0.01))
    body = {**question, "search": {"max_seconds": 0.01}}
    answer = TestClient(app, base_url="http://localhost").post("/v1/plans", json=body)
    assert answer.status_code == 503
    assert answer.json()["type"] == "/problems/time_limit"
    assert answer.headers["retry-after"]


def test_health_answers_while_searches_run_and_the_queue_is_bounded(
    question: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx2

    async def story() -> list[int]:
        release = asyncio.Event()

        async def wait(request: str) -> dict[str, Any]:
            await release.wait()
            return {"document": document_of(request)}

        monkeypatch.setattr(api.work, "_run_worker", wait)
        app = create_app(Settings(num_searches=1, max_waiting=1))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            running = [asyncio.create_task(client.post("/v1/plans", json=question)) for _ in range(2)]
            while app.state.work._searches._waiting < 1:
                await asyncio.sleep(0.01)
            refused = await client.post("/v1/plans", json=question)
            health = await client.get("/healthz")
            release.set()
            answers = await asyncio.gather(*running)
        assert refused.headers["retry-after"]
        return [refused.status_code, health.status_code, *(answer.status_code for answer in answers)]

    assert asyncio.run(story()) == [429, 200, 200, 200]


def test_the_gate_counts_those_who_left() -> None:
    async def story() -> None:
        gate = Gate(1, 0)
        async with gate.slot():
            with pytest.raises(Problem):
                async with gate.slot():
                    pass
        async with gate.slot():
            pass

    asyncio.run(story())


def test_a_search_process_answers_a_bad_request_with_a_problem(question: dict[str, Any]) -> None:
    # The request is refused before any solver is loaded; the process itself is real.
    bad = PlanRequest.model_validate({**question, "cluster": {"kind": "preset", "name": "none"}})
    with pytest.raises(Problem) as caught:
        asyncio.run(Work(Settings()).search(bad))
    assert caught.value.status_code == 422
    assert caught.value.faults[0].pointer == "/cluster"


def test_the_store_forgets_the_least_recently_used() -> None:
    store = PlanStore(max_plans=2, max_bytes=10**6)
    for name in ("a", "b"):
        store.put(StoredPlan.of({"id": name}))
    assert store.get("a") is not None
    store.put(StoredPlan.of({"id": "c"}))
    assert store.get("b") is None
    assert store.get("a") is not None
    assert store.get("c") is not None


def test_the_store_is_bounded_in_bytes() -> None:
    store = PlanStore(max_plans=100, max_bytes=1000)
    for name in ("a", "b", "c"):
        store.put(StoredPlan.of({"id": name, "text": "x" * 400}))
    # Each body is a little over 420 bytes: two fit into 1,000.
    assert [store.get(name) is not None for name in ("a", "b", "c")] == [False, True, True]


def test_numbers_that_are_not_finite_are_null() -> None:
    plan = StoredPlan.of({"id": "a", "x": float("nan"), "y": [float("inf")]})
    assert json.loads(plan.body) == {"id": "a", "x": None, "y": [None]}


def test_a_search_ends_when_its_client_goes_away() -> None:
    from starlette.requests import Request

    from api.work import while_connected

    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    async def story() -> None:
        messages = iter([{"type": "http.request", "more_body": False}, {"type": "http.disconnect"}])

        async def receive() -> Any:
            await asyncio.sleep(0)
            return next(messages)

        with pytest.raises(Problem, match="503"):
            await while_connected(Request({"type": "http"}, receive), work())

    asyncio.run(story())
    assert ended == ["ended"]
