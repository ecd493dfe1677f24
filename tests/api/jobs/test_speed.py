"""What durability costs: a plan over HTTP beside the library, cancel, taking over; run by `make bench`."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.jobs.kills import new_tag, question
from tests.api.jobs.servers import ROOT, Server, all_workers

pytestmark = pytest.mark.bench

Record = Callable[[str, object], None]
NUM = 10


def worker_s() -> float:
    """Seconds of one search process by hand, from its start to its answer."""
    began = time.monotonic()
    command = [sys.executable, "-P", "-m", "planner.worker"]
    place = {"cwd": ROOT, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}  # as the servers of these tests
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **place
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question(2)) + "\n")
        process.stdin.flush()
        assert any("document" in json.loads(line) for line in process.stdout)
        took_s = time.monotonic() - began
        process.stdin.close()
    return took_s


def test_a_plan_over_http_beside_its_search(tmp_path: Path, record_property: Record) -> None:
    server = Server(new_tag(), data_dir=tmp_path).until_ready()
    try:
        server.ask("POST", "/v1/plans", question(2), Prefer="wait=30")
        over_http, by_hand = [], []
        for _ in range(NUM):
            began = time.monotonic()
            status, _plan = server.ask("POST", "/v1/plans", question(2), Prefer="wait=30")
            assert status == 200
            over_http.append(time.monotonic() - began)
            by_hand.append(worker_s())
    finally:
        server.stop()
    record_property("search process by hand, median seconds", statistics.median(by_hand))
    record_property("the same over HTTP, median seconds", statistics.median(over_http))
    assert statistics.median(over_http) < statistics.median(by_hand) + 0.5


def test_cancel_ends_the_process_within_a_second(tmp_path: Path, record_property: Record) -> None:
    tag = new_tag()
    server = Server(tag, "hang", data_dir=tmp_path, num_searches=1).until_ready()
    took = []
    try:
        for _ in range(NUM):
            plan = server.ask("POST", "/v1/plans", question(2), Prefer="wait=0")[1]
            while not all_workers(tag):
                time.sleep(0.01)
            began = time.monotonic()
            assert server.ask("POST", f"/v1/plans/{plan['id']}/cancel")[0] == 202
            while all_workers(tag):
                time.sleep(0.01)
            took.append(time.monotonic() - began)
    finally:
        server.stop()
    record_property("cancel to the end of the process, worst seconds", max(took))
    assert max(took) < 1.0


def test_a_restarted_server_goes_on_at_once(tmp_path: Path, record_property: Record) -> None:
    tag = new_tag()
    first = Server(tag, "hang", data_dir=tmp_path).until_ready()
    plan = first.ask("POST", "/v1/plans", question(2), Prefer="wait=0")[1]
    while not all_workers(tag):
        time.sleep(0.01)
    second = Server(tag, "steps", data_dir=tmp_path).until_ready()
    try:
        first.kill()
        began = time.monotonic()
        while second.ask("GET", f"/v1/plans/{plan['id']}")[1]["attempt"] == 1:
            time.sleep(0.01)
        took_s = time.monotonic() - began
    finally:
        first.kill()
        second.stop()
    record_property("kill to the plan's return to the queue, seconds", took_s)
    assert took_s < 2.0
