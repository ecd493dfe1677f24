"""What strangers and clumsy clients try beside bodies: NUL, proxies, slow senders, old event ids, huge questions."""

import asyncio
import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from api import slow, strict_route
from api.app import create_app
from api.asking import Asking
from api.errors import Problem
from api.keyring import create_key, revoke_key
from api.routes import events as route
from api.settings import Settings
from api.store.watch import Watch

JSON = {"content-type": "application/json"}


def test_nul_is_no_text_anywhere(client: TestClient, question: dict[str, Any]) -> None:
    body = json.dumps({**question, "name": "a\0b"})
    assert client.post("/v1/plans", content=body, headers=JSON).json()["detail"].startswith("the body holds")
    assert client.get("/v1/plans/plan_%00").status_code == 404
    for query in ("name=%00", "tag=a%00b", "model=%00", "cursor=%00"):
        assert client.get(f"/v1/plans?{query}").status_code == 422
    for text in ("\0 \0", "2026 plan_\0", "2026\x1f plan_1"):
        cursor = base64.urlsafe_b64encode(text.encode()).decode()
        assert client.get("/v1/plans", params={"cursor": cursor}).status_code == 422


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "x-forwarded-host"])
def test_without_keys_nobody_comes_through_a_proxy(client: TestClient, header: str) -> None:
    answer = client.get("/v1/profiles", headers={header: "192.0.2.1"})
    assert (answer.status_code, answer.json()["type"]) == (403, "/problems/key_required")
    assert client.get("/healthz", headers={header: "192.0.2.1"}).status_code == 200


def test_with_a_key_a_proxy_changes_nothing(question: dict[str, Any]) -> None:
    app = create_app(Settings(host="0.0.0.0"))
    _, key = create_key(app.state.database, "team", "plan")
    client = TestClient(app, base_url="https://planner.example")
    told = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    headers = {"Authorization": f"Bearer {key}", "X-Forwarded-Prefix": "/evil", **told, "Prefer": "wait=0"}
    answer = client.post("/v1/plans", json=question, headers=headers)
    assert answer.status_code in (200, 202)
    # Paths without a host: right behind whatever name the proxy has.
    assert answer.headers["location"] == answer.json()["links"]["self"]
    assert answer.headers["location"].startswith("/v1/plans/plan_")
    assert "evil" not in answer.text
    app.state.jobs.stop()


def test_any_of_the_stated_tags_will_do(answering: TestClient, question: dict[str, Any]) -> None:
    plan = answering.post("/v1/plans", json=question)
    path, tag = plan.json()["links"]["self"], answering.get(plan.headers["location"]).headers["etag"]
    for stated, status in ((f'"x", {tag}', 200), (tag, 412), ('W/"x"', 412)):
        answer = answering.patch(path, json={"name": "b"}, headers={"If-Match": stated})
        assert answer.status_code == status


def test_an_event_id_of_another_life_is_answered_with_everything(
    answering: TestClient, question: dict[str, Any]
) -> None:
    plan = answering.post("/v1/plans", json=question, headers={"prefer": "wait=30"}).json()
    path = plan["links"]["events"]
    whole = answering.get(path).text
    last = whole.strip().split("\n\n")[-1].split("\n")[0].removeprefix("id: ")
    assert answering.get(path, headers={"Last-Event-ID": last}).status_code == 204
    for later in (int(last) + 1, 10**18):
        assert answering.get(path, headers={"Last-Event-ID": str(later)}).text == whole
    for strange in ("-1", "1e3", "one", "\u00b2", "9" * 21):
        answer = answering.get(path, headers={"Last-Event-ID": strange.encode("latin-1")})
        assert answer.status_code == 422


def test_a_stream_ends_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "LOOK_S", 0.01)
    monkeypatch.setattr("api.keyring.FRESH_S", 0.0)
    app = create_app(Settings(host="0.0.0.0"))
    key_id, key = create_key(app.state.database, "team", "read")
    scope = {"headers": [(b"authorization", f"Bearer {key}".encode())], "state": {"caller": object()}}
    watch = Watch(app.state.database)

    async def allowed() -> bool:
        return await route.is_still_admitted(app.state.keyring, scope)

    async def story() -> list[bytes]:
        assert await allowed()
        threading.Timer(0.1, revoke_key, (app.state.database, key_id)).start()
        async with asyncio.timeout(20):
            return [piece async for piece in route.stream(watch, "plan_none", 0, allowed)]

    assert asyncio.run(story()) == []
    watch.close()


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (
            "/v1/views",
            {"job": {"seq_len": 128, "global_batch": 10_000_000}, "strategy": "pp=8,mbs=1"},
            "160,000,000 operations",
        ),
        (
            "/v1/evaluations",
            {"job": {"seq_len": 128, "global_batch": 1_000}, "strategies": ["pp=33"] * 1000},
            # 33 stages a thousand times.
            "33,000 pipeline stages together",
        ),
    ],
)
def test_a_question_that_would_take_long_is_refused(
    client: TestClient, question: dict[str, Any], path: str, body: dict[str, Any], words: str
) -> None:
    answer = client.post(path, json={**question, **body})
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


@pytest.mark.parametrize(("memory", "is_gone", "status"), [(50_000_000, False, 422), (8 * 10**9, True, 499)])
def test_a_question_ends_where_it_grows_too_large_or_nobody_waits(
    question: dict[str, Any], memory: int, is_gone: bool, status: int
) -> None:
    asking = Asking(Settings(worker_memory_bytes=memory, worker_nice=0), threading.BoundedSemaphore(1))
    request = {**question, "strategy": "tp=1", "max_seconds": 60}

    async def gone() -> bool:
        return is_gone

    began_s = time.monotonic()
    with pytest.raises(Problem) as caught:
        asyncio.run(asking.ask("explanation", {"request": request, "stored": None}, 60.0, gone))
    assert caught.value.status_code == status
    assert caught.value.code == {422: "memory_limit", 499: "gone"}[status]
    assert time.monotonic() - began_s < 40


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server that is not as patient."""
    monkeypatch.setattr(slow, "HEADERS_S", 0.5)
    monkeypatch.setattr(strict_route, "BODY_S", 0.5)
    app = create_app(Settings())
    config = uvicorn.Config(
        app, port=0, log_config=None, access_log=False, http=slow.PatientProtocol, timeout_keep_alive=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[:2]
    server.should_exit = True
    thread.join(20)


POST = (
    b"POST /v1/inspections HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 90\r\n\r\n"
)
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nHo", b""),
        # A whole request and the beginning of another on the same connection.
        (GET + b"GET /hea", b"HTTP/1.1 200 OK"),
        (POST + b'{"model"', b"HTTP/1.1 408"),
    ],
)
def test_what_does_not_arrive_is_not_waited_for(
    address: tuple[str, int], sent: bytes, answered: bytes
) -> None:
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(sent)
        said = b""
        while piece := connection.recv(65536):  # the end of the stream: the server has closed
            said += piece
    assert said.startswith(answered)
    assert bool(said) == bool(answered)
