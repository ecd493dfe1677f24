"""A server's application and a client of it."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings

BASE_URL = "http://127.0.0.1:8000"

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
def client(app: FastAPI) -> Iterator[TestClient]:
    """A client on this machine."""
    with TestClient(app, base_url=BASE_URL) as client:
        yield client
