"""Logs are JSON with request ids and tell no secrets; metrics count every answer by route."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.keys import FileKey, hash_key
from api.logs import configure_logs
from api.settings import Settings

KEY = "secret-" + "k" * 32


@pytest.fixture
def lines() -> Iterator[Any]:
    """Whatever is logged, parsed, after logging was set up as a server does it."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure_logs(stream=stream)
    # The test's own client logs too; the server's lines are meant.
    parsed = lambda: [json.loads(line) for line in stream.getvalue().splitlines()]  # noqa: E731
    yield lambda: [line for line in parsed() if line["logger"] != "httpx2"]
    root.handlers[:], root.level = before, level


def client(**settings: Any) -> TestClient:
    """A client that is answered with the server's 500."""
    return TestClient(
        create_app(Settings(**settings)), base_url="http://localhost", raise_server_exceptions=False
    )


def test_every_request_is_one_line_with_its_id(lines: Any) -> None:
    client().get("/v1/profiles", headers={"x-request-id": "mine-1"})
    (line,) = [line for line in lines() if line["message"] == "request"]
    assert (line["request_id"], line["method"], line["route"]) == ("mine-1", "GET", "/v1/profiles")
    assert (line["status"], line["level"], line["logger"]) == (200, "info", "api")
    assert line["seconds"] > 0
    assert line["time"]


def test_a_failure_is_logged_with_its_id_and_not_answered(lines: Any) -> None:
    asked = client()

    @asked.app.get("/broken")  # type: ignore[attr-defined]
    async def broken() -> None:
        raise RuntimeError("the cause")

    answer = asked.get("/broken")
    assert (answer.status_code, "cause" in answer.text) == (500, False)
    (line,) = [line for line in lines() if line["message"] == "request failed"]
    assert line["request_id"] == answer.headers["x-request-id"]
    assert "the cause" in line["exception"]


def test_no_key_is_logged(lines: Any) -> None:
    asked = client(file_keys=(FileKey(sha256=hash_key(KEY)),))
    for header in (f"Bearer {KEY}", f"Basic {KEY}", KEY):
        asked.get("/v1/profiles?key=" + KEY, headers={"authorization": header})
    assert len(lines()) >= 3
    assert KEY not in json.dumps(lines())


def test_lines_of_libraries_are_json_too(lines: Any) -> None:
    logging.getLogger("uvicorn.error").info("at %s", "work", extra={"color_message": "at \x1b[1m%s"})
    (line,) = lines()
    assert (line["message"], line["logger"], "color_message" in line) == ("at work", "uvicorn.error", False)


def test_a_path_cannot_forge_a_line(lines: Any) -> None:
    client().get("/v1/%0A%7B%22message%22:1%7D%1b[31m")
    assert all(line["message"] != 1 for line in lines())


def test_metrics_count_answers_by_route() -> None:
    asked = client()
    for path in (
        "/v1/catalog/devices/l4",
        "/v1/catalog/devices/a10g",
        "/v1/catalog/devices/none",
        "/nowhere",
    ):
        asked.get(path)
    asked.request("BREW", "/nowhere")
    answer = asked.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    route = 'method="GET",route="/v1/catalog/{kind}/{name}"'
    assert f'planner_http_requests_total{{{route},status="200"}} 2.0' in answer.text
    assert f'planner_http_requests_total{{{route},status="404"}} 1.0' in answer.text
    assert 'method="other",route="none",status="404"' in answer.text
    assert "planner_http_request_seconds_bucket" in answer.text


def test_parts_of_the_server_bring_gauges() -> None:
    asked = client()
    asked.app.state.metrics.watch("queue_plans", "Plans that wait", lambda: 3, {"state": "queued"})  # type: ignore[attr-defined]
    text = asked.get("/metrics").text
    assert 'planner_queue_plans{state="queued"} 3.0' in text
    assert {"planner_searches 0.0", "planner_evaluations_waiting 0.0"} <= set(text.splitlines())
