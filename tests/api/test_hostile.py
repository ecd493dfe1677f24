"""Thousands of hostile bodies: every answer is a problem of class 4xx that says where, and memory stays as it was.

A changed body may still be a good one (another number of strategies, a null where null is allowed); then it is answered
as such, and only what is refused is looked at.
"""

import gc
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.examples import EXAMPLES
from api.settings import Settings

JSON = {"content-type": "application/json"}
SLOW = ("/v1/explanations", "/v1/sizes")
FAST = tuple(path for path in EXAMPLES if path not in (*SLOW, "/v1/plans"))
# The slow ones start a process each, so that they are asked less often.
ALL = FAST * 8 + SLOW + ("/v1/plans",) * 4
GROWTH_BYTES = 40 * 1024**2


def load_hostile() -> Any:
    """The generator beside this file, which is no package."""
    spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOSTILE = load_hostile()


def server() -> TestClient:
    """A server whose searches answer at once and whose errors are answers."""
    command = (sys.executable, "-S", "-E", str(Path(__file__).with_name("fake_worker.py")), "answer")
    settings = Settings(
        max_body_bytes=300_000, worker_command=command, drain_s=0.0, worker_nice=0, max_queued=10_000
    )
    return TestClient(create_app(settings), base_url="http://localhost", raise_server_exceptions=False)


def attack(client: TestClient, seeds: range, paths: tuple[str, ...]) -> Counter[int]:
    """Send the bodies of seeds; the number of answers of each status."""
    found: Counter[int] = Counter()
    for seed in seeds:
        path, content = HOSTILE.hostile(seed, paths)
        answer = client.post(path, content=content, headers={**JSON, "prefer": "wait=0"})
        found[answer.status_code] += 1
        assert answer.status_code < 500, (seed, path, content[:500], answer.text)
        assert answer.text.isascii(), (seed, path)
        if answer.status_code >= 400:
            check_problem(answer.json(), answer.headers["content-type"], (seed, path, content[:500]))
    return found


def check_problem(problem: dict[str, Any], kind: str, about: object) -> None:
    """A problem that says where: a pointer, or the byte; short, and without the input."""
    assert kind == "application/problem+json", about
    assert problem["errors"] or problem["status"] in (413, 415), about
    assert all({"pointer", "code", "detail"} <= set(fault) for fault in problem["errors"]), about
    text = json.dumps(problem)
    assert len(text) < 60_000, about
    assert "Traceback" not in text, about
    if problem["status"] == 400 and ("is not JSON" in problem["detail"] or "not UTF-8" in problem["detail"]):
        assert " byte " in problem["detail"], about


def test_hostile_bodies_are_refused_with_a_reason() -> None:
    found = attack(server(), range(300), FAST)
    assert found[400] > 50
    assert found[422] > 50
    assert set(found) <= {200, 400, 413, 422}


@pytest.mark.matrix
def test_ten_thousand_hostile_bodies_leave_memory_as_it_was() -> None:
    process = psutil.Process()
    with server() as client:
        attack(client, range(1000), ALL)  # imports, caches
        gc.collect()
        before = process.memory_info().rss
        found = attack(client, range(1000, 11_000), ALL)
        gc.collect()
        grown = process.memory_info().rss - before
    text = f"10,000 hostile bodies: {dict(sorted(found.items()))}, resident memory {grown / 1024**2:+.1f} MiB"
    print(f"\n{text}")  # noqa: T201
    assert set(found) <= {200, 202, 400, 413, 422, 429}
    assert grown < GROWTH_BYTES
