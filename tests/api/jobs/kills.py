"""Kills at seeded times. The client writes down every plan it was given; in the end each is in one final state with the
undisturbed result, and no search process of a dead server is left.

Three kinds of kill: the server while a search runs; the server while it stops, another job version coming after it;
one of two replicas over one database.
"""

import json
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.api.jobs.servers import NO_ANSWER, ROOT, Server, all_workers

FINAL = ("succeeded", "failed", "cancelled")
WITH_SERVER_S = 5.0
"""The most that a search outlives its server (it ends with its input)."""
END_S = 240.0


def question(seed: int) -> dict[str, Any]:
    """Small searches of about a second, a few different ones."""
    model, devices = (("llama-3.2-1b", 8), ("llama-3.1-8b", 16), ("gpt2", 8))[seed % 3]
    return {
        "model": {"kind": "catalog", "name": model},
        "cluster": {"kind": "preset", "name": "dgx-h100", "devices": devices},
        "job": {"seq_len": 1024, "global_batch": 64},
        "search": {"seed": seed % 3, "top_k": 2},
    }


def undisturbed(seed: int) -> dict[str, Any]:
    """The result of a question, searched once in peace."""
    command = [sys.executable, "-m", "planner.worker"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(question(seed)) + "\n")
    process.stdin.flush()
    *_, last = (json.loads(line) for line in process.stdout)
    process.stdin.close()
    process.wait()
    process.stdout.close()
    return timeless(last["document"]["result"])


def timeless(value: Any) -> Any:
    """A result without what a clock says about its making."""
    if isinstance(value, Mapping):
        return {key: timeless(inner) for key, inner in value.items() if key != "wall_s"}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


@dataclass
class Story:
    """One run of the harness: servers that are killed and replaced, and what the client was given."""

    start: Callable[[str], Server]
    """A new server of a job version on the same database."""
    expected: Callable[[int], Any]
    """The result of a question that nobody disturbs."""
    tag: str
    seed: int
    num_servers: int = 1
    servers: list[Server] = field(default_factory=list)
    given: dict[str, int] = field(default_factory=dict)
    kills: dict[str, int] = field(default_factory=dict)
    with_worker: int = 0
    takeover_s: list[float] = field(default_factory=list)
    version: int = 1

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._asked = 0

    def __enter__(self) -> "Story":
        """Start the first servers."""
        for _ in range(self.num_servers):
            self.servers.append(self._new())
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no process, however the story ended."""
        for server in self.servers:
            server.kill()

    def ask(self, num_live: int) -> None:
        """Wait until fewer plans live, then ask for more, each under a key of its own until an id is given."""
        self._await(lambda: len(self._live()) < num_live, END_S)
        for _ in range(num_live - len(self._live())):
            self._asked += 1
            key, number = f"{self.tag}-{self._asked}", self._asked
            while True:
                server = self._random.choice(self.servers)
                headers = {"Idempotency_Key": key, "Prefer": "wait=0"}
                status, plan = server.ask("POST", "/v1/plans", question(number), **headers)
                if status in (200, 202):
                    self.given[plan["id"]] = number
                    break
                assert status in (NO_ANSWER, 429, 503), plan
                time.sleep(0.1)

    def kill_at_work(self) -> None:
        """Kill a server while a search runs on it."""
        self.ask(3)
        victim = self._random.choice(self.servers)
        self._await(lambda: bool(victim.workers()) or not self._live(), END_S)
        time.sleep(self._random.uniform(0.0, 1.5))
        self._kill(victim, "at work")

    def kill_while_it_stops(self) -> None:
        """Tell a server to stop and kill it on its way; another job version takes over."""
        self.ask(3)
        victim = self._random.choice(self.servers)
        time.sleep(self._random.uniform(0.0, 1.0))
        victim.tell_to_stop()
        time.sleep(self._random.uniform(0.0, 0.8))
        self.version += 1
        self._kill(victim, "stopping")

    def close(self) -> None:
        """Wait until everything has ended, then stop what still runs."""
        self._await(lambda: not self._live(), END_S)
        self.check()
        for server in self.servers:
            assert server.stop() == 0
        assert all_workers(self.tag) == []

    def check(self) -> None:
        """Each plan that was given is final, once, with the result that nobody disturbed."""
        expected = {seed: self.expected(seed) for seed in {number % 3 for number in self.given.values()}}
        for plan_id, number in self.given.items():
            status, plan = self.servers[0].ask("GET", f"/v1/plans/{plan_id}")
            assert (status, plan["state"]) == (200, "succeeded"), plan["problem"]
            assert timeless(plan["result"]) == expected[number % 3], plan_id
        assert set(self._listed()) == set(self.given)  # no plan that nobody was told of

    def _kill(self, victim: Server, kind: str) -> None:
        orphans = victim.workers()
        self.with_worker += bool(orphans)
        victim.kill()
        self.kills[kind] = self.kills.get(kind, 0) + 1
        deadline = time.monotonic() + WITH_SERVER_S
        while any(orphan.is_running() and orphan.pid in all_workers(self.tag) for orphan in orphans):
            assert time.monotonic() < deadline, "a search outlived its server"
            time.sleep(0.02)
        self.servers[self.servers.index(victim)] = self._new()

    def _new(self) -> Server:
        server = self.start(str(self.version))
        try:
            return server.until_ready()
        except BaseException:
            server.kill()
            raise

    def _live(self) -> list[str]:
        return [plan_id for plan_id, state in self._listed().items() if state not in FINAL]

    def _listed(self) -> dict[str, str]:
        """State of every plan of the database."""
        found: dict[str, str] = {}
        cursor = ""
        while True:
            status, page = self.servers[0].ask("GET", f"/v1/plans?limit=100{cursor}")
            if status != 200:
                time.sleep(0.1)
                continue
            found |= {plan["id"]: plan["state"] for plan in page["items"]}
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={page['next_cursor']}"

    def _await(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, f"still live: {self._live()}"
            time.sleep(0.05)


def new_tag() -> str:
    """A mark that no other process carries."""
    return uuid.uuid4().hex
