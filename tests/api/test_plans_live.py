"""Plans while they live: waiting, cancel, a full queue, and how searches fail."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

WAIT = {"prefer": "wait=30"}
NO_WAIT = {"prefer": "wait=0"}


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def hanging(serve: Callable[..., Any]) -> Any:
    """A server whose searches do not end by themselves; two at once, one more waits."""
    with serve("hang", num_searches=2, max_queued=3) as client:
        yield client


def asked(client: TestClient, question: dict[str, Any], **headers: str) -> dict[str, Any]:
    answer = client.post("/v1/plans", json=question, headers={**NO_WAIT, **headers})
    assert answer.status_code == 202, answer.text
    plan: dict[str, Any] = answer.json()
    return plan


def state_of(client: TestClient, plan: dict[str, Any]) -> str:
    found = client.get(plan["links"]["self"])
    return "" if found.status_code == 503 else str(found.json()["state"])  # 503: it migrates its database


def cancel_all(client: TestClient) -> None:
    for state in ("queued", "running"):
        for plan in client.get("/v1/plans", params={"state": state, "limit": 100}).json()["items"]:
            client.post(plan["links"]["cancel"])


def test_who_waits_too_short_is_told_where_to_look(hanging: TestClient, question: dict[str, Any]) -> None:
    answer = hanging.post("/v1/plans", json=question, headers={"prefer": "wait=0.1"})
    assert answer.status_code == 202
    plan = answer.json()
    assert plan["state"] in ("queued", "running")
    assert answer.headers["location"] == plan["links"]["self"]
    until(lambda: state_of(hanging, plan) == "running")
    until(lambda: hanging.get(plan["links"]["self"]).json()["progress"]["lower_bound_s"] == 1.0)
    cancel_all(hanging)


def test_a_cancelled_plan_stays_cancelled(hanging: TestClient, question: dict[str, Any]) -> None:
    plan = asked(hanging, question)
    until(lambda: state_of(hanging, plan) == "running")
    assert hanging.delete(plan["links"]["self"]).status_code == 409  # it lives
    first = hanging.post(plan["links"]["cancel"])
    assert (first.status_code, first.json()["state"]) == (202, "cancelled")
    assert hanging.post(plan["links"]["cancel"]).status_code == 200
    until(lambda: hanging.app.state.jobs.num_tasks == 0)
    final = hanging.get(plan["links"]["self"]).json()
    assert (final["state"], final["result"], final["attempt"]) == ("cancelled", None, 1)
    # what was known when it was cancelled is kept
    assert final["progress"]["best_step_s"] in (None, 4.0)
    assert hanging.delete(plan["links"]["self"]).status_code == 204
    assert hanging.get(plan["links"]["self"]).status_code == 404


def test_a_full_queue_sends_away(hanging: TestClient, question: dict[str, Any]) -> None:
    running = [asked(hanging, question) for _ in range(2)]
    until(lambda: all(state_of(hanging, plan) == "running" for plan in running))
    queued = [asked(hanging, question) for _ in range(3)]
    refused = hanging.post("/v1/plans", json=question)
    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too_many_requests")
    assert int(refused.headers["retry-after"]) > 0
    # at most as many workers as cores: those that wait stay queued, and leave the queue when cancelled
    assert {state_of(hanging, plan) for plan in queued} == {"queued"}
    assert hanging.post(queued[1]["links"]["cancel"]).json()["state"] == "cancelled"
    hanging.post(running[0]["links"]["cancel"])
    until(lambda: state_of(hanging, queued[0]) == "running")
    assert state_of(hanging, queued[1]) == "cancelled"
    cancel_all(hanging)
    until(lambda: hanging.app.state.jobs.num_tasks == 0)


CODES = [None, "invalid_request", "worker_died", "time_limit", "memory_limit"]
"""By the stories of the fake worker."""


def test_how_a_search_fails(serve: Callable[..., Any], question: dict[str, Any]) -> None:
    limits = {"search_grace_s": 1.0, "worker_memory_bytes": 300_000_000, "num_searches": 3}
    with serve("by seed", **limits) as client:
        plans = []
        for seed in range(len(CODES)):
            limit_s = 2.0 if CODES[seed] == "time_limit" else 300.0
            body = {**question, "search": {"max_seconds": limit_s, "seed": seed}}
            plans.append(asked(client, body))
        until(lambda: all(client.get(p["links"]["self"]).json()["ended_at"] for p in plans))
        finals = [client.get(p["links"]["self"]).json() for p in plans]
    assert [final["state"] for final in finals] == ["succeeded", *["failed"] * 4]
    assert [final["problem"] and final["problem"]["code"] for final in finals] == CODES
    # what a search knew when it was ended is kept
    assert [(f["progress"]["lower_bound_s"], f["progress"]["best_step_s"]) for f in finals[2:]] == [
        (1.0, 4.0)
    ] * 3


def test_a_worker_that_cannot_be_started_fails_its_plan(
    serve: Callable[..., Any], question: dict[str, Any]
) -> None:
    with serve(worker_command=("/no/such/program",)) as client:
        plan = client.post("/v1/plans", json=question, headers=WAIT).json()
    assert (plan["state"], plan["problem"]["code"]) == ("failed", "worker_died")


def test_a_backup_taken_while_it_runs_is_restored(
    serve: Callable[..., Any], question: dict[str, Any], tmp_path: Path
) -> None:
    backup = tmp_path / "restored" / "planner.sqlite"
    backup.parent.mkdir()
    with serve("hang", data_dir=tmp_path / "first", num_searches=1) as client:
        running, queued = asked(client, {**question, "name": "a"}), asked(client, question)
        until(lambda: state_of(client, running) == "running")
        live = tmp_path / "first" / "planner.sqlite"
        with closing(sqlite3.connect(live)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
    with serve("answer", data_dir=backup.parent, starts_jobs=True) as client:
        until(lambda: {state_of(client, plan) for plan in (running, queued)} == {"succeeded"})
        again = client.get(running["links"]["self"]).json()
        assert (again["name"], again["attempt"], again["request"]["job"]["seq_len"]) == ("a", 2, 2048)


def test_a_server_that_stops_gives_its_plans_back(
    serve: Callable[..., Any], question: dict[str, Any], tmp_path: Path
) -> None:
    with serve("hang", data_dir=tmp_path, num_searches=1) as client:
        running, queued = asked(client, question), asked(client, question)
        until(lambda: state_of(client, running) == "running")
        jobs = client.app.state.jobs
        jobs.drain(0.0)
        assert client.get("/readyz").status_code == 503
        assert client.post("/v1/plans", json=question).status_code == 503
        assert state_of(client, running) == "queued"
    # the next server, of another job version, goes on with both
    with serve("answer", data_dir=tmp_path, starts_jobs=True, job_version="2") as client:
        until(lambda: {state_of(client, plan) for plan in (running, queued)} == {"succeeded"})
        attempts = [client.get(plan["links"]["self"]).json()["attempt"] for plan in (running, queued)]
        assert attempts == [2, 1]
        assert client.get("/readyz").status_code == 200
