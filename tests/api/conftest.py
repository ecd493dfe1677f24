"""A server's application and a client of it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings

BASE_URL = "http://127.0.0.1:8000"
FAKE_WORKER = Path(__file__).with_name("fake_worker.py")

JOB = {"seq_len": 2048, "global_batch": 32}
QUESTION: dict[str, Any] = {
    "model": {"kind": "catalog", "name": "llama-3.2-1b"},
    "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8},
    "job": JOB,
}


@pytest.fixture
def question() -> dict[str, Any]:
    """A small, valid question; a fresh copy each time."""
    return {key: dict(value) for key, value in QUESTION.items()}


@pytest.fixture(scope="session")
def app() -> FastAPI:
    """An application with a small body limit; it keeps no state between tests that matters to them."""
    return create_app(Settings(max_body_bytes=100_000))


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    """A client on this machine, of an application that is neither started nor stopped."""
    return TestClient(app, base_url=BASE_URL)


Serve = Callable[..., AbstractContextManager[TestClient]]


@pytest.fixture(scope="session")
def serve() -> Serve:
    """A server whose searches are told by a story of tests/api/fake_worker.py; further settings as keywords."""

    @contextmanager
    def serving(story: str = "answer", **settings: Any) -> Iterator[TestClient]:
        command = (sys.executable, "-S", "-E", str(FAKE_WORKER), story)
        given = {"worker_command": command, "drain_s": 0.0, "worker_nice": 0, **settings}
        with TestClient(create_app(Settings(**given)), base_url=BASE_URL) as client:
            yield client

    return serving


@pytest.fixture(scope="module")
def answering(serve: Serve) -> Iterator[TestClient]:
    """One server for a file's tests, whose searches answer at once."""
    with serve("answer") as client:
        yield client
