"""Load of one server on an otherwise idle machine of two cores: `make bench`; prints what it measured."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = 200
PROBES = 400
PROBE_PAUSE_S = 0.01
READERS = 200
SEARCHES = 14
LEAST_SHARE = 0.6
MOST_SLOWDOWN = 5.0
MOST_BY_READERS = 1.2
JSON = {"content-type": "application/json", "prefer": "wait=0"}
pytestmark = pytest.mark.bench

LIBRARY = """
import json, sys, time
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve

def one(seq_len):
    job = JobRequest(seq_len=seq_len, global_batch=512)
    situation = resolve(CatalogModel(name="llama-3.1-8b"), PresetCluster(name="dgx-h100", devices=64), job)
    return json.dumps(evaluate(situation, parse_strategy("tp=2,pp=2,mbs=1")).to_json())

first, number = int(sys.argv[1]), int(sys.argv[2])
for index in range(20):
    one(1024 + 64 * index)
began, used = time.perf_counter(), time.process_time()
for index in range(number):
    one(64 * (first + index))
print(json.dumps([(time.perf_counter() - began) / number, (time.process_time() - used) / number]))
"""


def question(index: int) -> str:
    """A body that no other is equal to."""
    return json.dumps(
        {
            "model": {"kind": "catalog", "name": "llama-3.1-8b"},
            "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 64},
            "job": {"seq_len": 64 * index, "global_batch": 512},
            "strategies": ["tp=2,pp=2,mbs=1"],
        }
    )


class Server:
    """A running `planner-server` and a connection to it."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.port = port
        self.process = psutil.Process(process.pid)
        self._next = 10_000
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method: str, path: str, body: str = "") -> Any:
        """One call over the connection that stays open, its answer parsed."""
        self._connection.request(method, path, body or None, JSON)
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text)

    def is_ready(self) -> bool:
        """Whether it takes requests."""
        self._connection.request("GET", "/readyz")
        answer = self._connection.getresponse()
        answer.read()
        return answer.status == 200

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def evaluation_s(self, number: int) -> tuple[float, float]:
        """Seconds, and the server's processor seconds, of one of a number of distinct evaluations."""
        self._connection.close()  # the server ends what was silent for seconds
        before, began = self.used_s(), time.perf_counter()
        for _ in range(number):
            self._next += 1
            self.ask("POST", "/v1/evaluations", question(self._next))
        return (time.perf_counter() - began) / number, (self.used_s() - before) / number

    def used_s(self) -> float:
        """Processor seconds of the server itself, without its searches."""
        times = self.process.cpu_times()
        return times.user + times.system

    def health_p99_s(self) -> float:
        """The slowest but one in a hundred of a number of health checks."""
        found = []
        for _ in range(PROBES):
            began = time.perf_counter()
            self.ask("GET", "/healthz")
            found.append(time.perf_counter() - began)
            time.sleep(PROBE_PAUSE_S)
        return sorted(found)[int(0.99 * PROBES)]

    def fill_cores(self) -> list[str]:
        """More long searches than there are cores, so that as many as there are cores run; their ids once they do."""
        body = json.loads(question(64)) | {"model": {"kind": "catalog", "name": "deepseek-v3"}}
        body |= {
            "cluster": {"kind": "preset", "name": "dgx-h800", "devices": 2048},
            "search": {"max_seconds": 300},
        }
        body["job"] = {"seq_len": 4096, "global_batch": 15360}
        del body["strategies"]
        found = [self.ask("POST", "/v1/plans", json.dumps(body))["id"] for _ in range(SEARCHES)]
        while self.ask("GET", f"/v1/plans/{found[(os.cpu_count() or 1) - 1]}")["state"] == "queued":
            time.sleep(0.2)
        return found

    def cancel(self, plans: list[str]) -> None:
        """End searches."""
        for plan in plans:
            self._connection.request("POST", f"/v1/plans/{plan}/cancel")
            self._connection.getresponse().read()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of its own."""
    program = "from api.server import main; main()"
    command = [sys.executable, "-c", program, "--port", "0", "--data-dir", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next(line for line in process.stderr if "running on" in line)
    drain = threading.Thread(target=lambda: [None for _ in process.stderr or ()])
    drain.start()
    found = Server(process, int(line.split("127.0.0.1:")[1].split()[0].strip('",}')))
    while not found.is_ready():
        time.sleep(0.2)
    found.evaluation_s(20)
    yield found
    found.close()
    process.terminate()
    process.wait(60)
    drain.join(10)
    process.stderr.close()


def library_s(first: int) -> tuple[float, float]:
    """Seconds and processor seconds of one evaluation of the library, in a process of its own."""
    command = [sys.executable, "-c", LIBRARY, str(first), str(QUESTIONS)]
    wall, used = json.loads(subprocess.check_output(command, cwd=ROOT, text=True))
    return wall, used


class Readers:
    """Many readers of one plan's events, each a socket that is read when something comes."""

    def __init__(self, server: Server, plan: str) -> None:
        request = f"GET /v1/plans/{plan}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self._sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(READERS)]
        for each in self._sockets:
            each.sendall(request)
            assert b"200" in each.recv(64)

    def close(self) -> None:
        """Go away."""
        for each in self._sockets:
            each.close()


def shown(**values: float) -> None:
    """One line of figures."""
    print("\n" + ", ".join(f"{key} {value:.3g}" for key, value in values.items()))  # noqa: T201


def best_of(measure: Callable[[], tuple[float, float]], times: int = 3) -> tuple[float, float]:
    """The least of each figure: what a machine does when nothing else is in its way."""
    found = [measure() for _ in range(times)]
    return min(wall for wall, _ in found), min(used for _, used in found)


def test_evaluations_over_http_reach_most_of_the_librarys_rate(server: Server) -> None:
    library = best_of(lambda: library_s(1000))
    served = best_of(lambda: server.evaluation_s(QUESTIONS))
    shown(library_ms=1e3 * library[0], http_ms=1e3 * served[0], share=library[0] / served[0])
    shown(library_cpu_ms=1e3 * library[1], server_cpu_ms=1e3 * served[1], share=library[1] / served[1])
    assert library[0] / served[0] >= LEAST_SHARE


def test_health_answers_while_searches_fill_the_cores_and_readers_look_on(server: Server) -> None:
    idle_s = min(server.health_p99_s() for _ in range(3))
    plans = server.fill_cores()
    busy_s = min(server.health_p99_s() for _ in range(3))
    rate_s, used_s = best_of(lambda: server.evaluation_s(QUESTIONS))
    shown(idle_p99_ms=1e3 * idle_s, busy_p99_ms=1e3 * busy_s, ratio=busy_s / idle_s)
    readers = Readers(server, plans[-1])
    watched_s = min(server.health_p99_s() for _ in range(3))
    watched_rate_s, watched_used_s = best_of(lambda: server.evaluation_s(QUESTIONS))
    readers.close()
    server.cancel(plans)
    shown(readers=READERS, p99_ratio=watched_s / busy_s, evaluation_ratio=watched_rate_s / rate_s)
    shown(server_cpu_ms=1e3 * used_s, with_readers_cpu_ms=1e3 * watched_used_s)
    assert busy_s <= MOST_SLOWDOWN * idle_s
    assert watched_s <= MOST_BY_READERS * busy_s
    assert watched_rate_s <= MOST_BY_READERS * rate_s
