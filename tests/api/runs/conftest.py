"""A server that may run plans, a stored plan without a search, and runs that do as a story says."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert

from api.app import create_app
from api.runs.processes import processes_of_run
from api.settings import Settings
from api.store import Database
from api.store.changes import dump
from api.store.plans import NO_PROGRESS
from api.store.tables import plans
from planner.evaluation import evaluate
from planner.plan_file import now_text, resolved_request
from planner.request import SearchRequest
from tests.planner.executor.orders import tiny_order

BASE_URL = "http://127.0.0.1:8000"
STUB = Path(__file__).with_name("stub_run.py")
SECONDS = 30.0

Serve = Callable[..., AbstractContextManager[TestClient]]


@pytest.fixture
def plan_document() -> dict[str, Any]:
    """A plan of two ranks on the CPU, as the search would have stored it."""
    order = tiny_order("dp=2", devices=2)
    best = evaluate(order.situation, order.strategy).to_json()
    result = {"status": "optimal", "best": best, "alternatives": [], "certificate": {}}
    request = resolved_request(order.situation, SearchRequest()).model_dump(mode="json")
    return {"request": request, "result": result}


def store_plan(database: Database, document: dict[str, Any], **changes: Any) -> str:
    """Put a plan that has succeeded into the database; its id."""
    with database.read() as connection:
        number = len(connection.execute(plans.select()).all())
    values = {
        "id": f"plan_{number:032x}",
        "state": "succeeded",
        "attempt": 1,
        "revision": 1,
        "last_event": 0,
        "tags": "[]",
        "request": dump(document["request"]),
        "result": dump(document["result"]),
        "progress": NO_PROGRESS,
        "made_with": "{}",
        "created_at": now_text(),
        "ended_at": now_text(),
        "key_id": "",
        "job_number": 1,
        "num_bytes": 0,
    }
    with database.write() as connection:
        connection.execute(insert(plans).values(values | changes))
    return str((values | changes)["id"])


@pytest.fixture
def serve_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """A server over `tmp_path/data` whose runs are told by a story of stub_run.py."""
    monkeypatch.setenv("STUB_FOLDER", str(tmp_path))

    @contextmanager
    def serving(story: str = "good", **settings: Any) -> Iterator[TestClient]:
        command = (sys.executable, "-S", "-E", str(STUB), story)
        given = {"allow_runs": True, "data_dir": tmp_path / "data", "run_command": command, "drain_s": 0.0}
        app = create_app(Settings(**{**given, "run_grace_s": 1.0, **settings}))
        app.state.database.prepare()
        with TestClient(app, base_url=BASE_URL) as client:
            yield client

    return serving


def launch(client: TestClient, document: dict[str, Any], body: dict[str, Any] | None = None) -> str:
    """Store a plan and run it; the run's path."""
    plan_id = store_plan(client.app.state.database, document)  # type: ignore[attr-defined]
    answer = client.post(f"/v1/plans/{plan_id}/runs", json=body or {})
    assert answer.status_code == 202, answer.text
    return str(answer.headers["location"])


def until(client: TestClient, path: str, *states: str, seconds: float = SECONDS) -> dict[str, Any]:
    """The run once it is in one of the states."""
    deadline = time.monotonic() + seconds
    while True:
        run: dict[str, Any] = client.get(path).json()
        if run["state"] in states:
            return run
        assert time.monotonic() < deadline, run
        time.sleep(0.05)


def until_true(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait for something."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def processes(path: str) -> set[int]:
    """Processes that carry the run's id."""
    return processes_of_run(path.rpartition("/")[2])
