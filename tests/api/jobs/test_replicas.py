"""Two servers over one PostgreSQL: takeover, cancel from afar, a database that goes away, an upgrade of one of them."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.api.jobs.kills import new_tag, question
from tests.api.jobs.postgres import Cluster, private_cluster
from tests.api.jobs.servers import Server, all_workers

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with private_cluster() as running:
        yield running


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[tuple[Server, Server]]:
    """Two replicas whose searches hang; each takes one at a time."""
    tag, settings = new_tag(), {"database": cluster.url, "num_searches": 1}
    servers = [Server(tag, "hang", **settings) for _ in range(2)]
    try:
        first, second = (server.until_ready() for server in servers)
        yield first, second
        alive = next(server for server in (first, second) if server.ask("GET", "/healthz")[0] == 200)
        for plan in alive.ask("GET", "/v1/plans?limit=100")[1]["items"]:
            alive.ask("POST", f"/v1/plans/{plan['id']}/cancel")
    finally:
        for server in servers:
            server.kill()


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> float:
    """Seconds until something that must come came."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + limit_s, "it never came"
        time.sleep(0.02)
    return time.monotonic() - began


def ask(server: Server) -> str:
    status, plan = server.ask("POST", "/v1/plans", question(2), Prefer="wait=0")
    assert status == 202, plan
    return str(plan["id"])


def plan_of(server: Server, plan_id: str) -> dict[str, Any]:
    plan: dict[str, Any] = server.ask("GET", f"/v1/plans/{plan_id}")[1]
    return plan


def test_a_dead_servers_plan_goes_on_and_no_other(
    pair: tuple[Server, Server], record_property: Callable[[str, object], None]
) -> None:
    first, second = pair
    ids = [ask(first), ask(second)]
    until(lambda: all(plan_of(first, i)["state"] == "running" for i in ids))
    until(lambda: len(first.workers()) == len(second.workers()) == 1)
    survivor_worker = second.workers()[0].pid
    first.kill()
    record_property(
        "seconds from a kill to the plan's new attempt", until(lambda: attempts(second, ids) == [1, 2])
    )
    # The survivor's own plan was left alone: the same process still searches it.
    assert [worker.pid for worker in second.workers()] == [survivor_worker]
    until(lambda: all_workers(first.tag) == [survivor_worker])


def attempts(server: Server, ids: list[str]) -> list[int]:
    return sorted(plan_of(server, plan_id)["attempt"] for plan_id in ids)


def test_a_plan_is_cancelled_from_any_server(
    pair: tuple[Server, Server], record_property: Callable[[str, object], None]
) -> None:
    ids = [ask(pair[0]), ask(pair[1])]
    until(lambda: all(len(server.workers()) == 1 for server in pair))
    for plan_id in ids:  # one of the two runs on the other server
        assert pair[0].ask("POST", f"/v1/plans/{plan_id}/cancel")[0] == 202
    took_s = until(lambda: not all_workers(pair[0].tag))
    record_property("seconds from cancel to the end of the processes", took_s)
    assert {plan_of(pair[1], plan_id)["state"] for plan_id in ids} == {"cancelled"}


def test_without_a_database_searches_end_and_begin_again_with_it(
    pair: tuple[Server, Server], cluster: Cluster
) -> None:
    first, second = pair
    plan_id = ask(first)
    until(lambda: len(all_workers(first.tag)) == 1)
    before = all_workers(first.tag)
    cluster.stop()
    try:
        until(lambda: not all_workers(first.tag))  # the lease is lost: others may search it already
        assert first.ask("GET", "/healthz")[0] == 200
        until(lambda: first.ask("GET", "/readyz")[0] == 503)
        assert first.ask("GET", f"/v1/plans/{plan_id}")[0] == 503
    finally:
        cluster.start()
    for server in pair:
        server.until_ready()
    until(lambda: len(all_workers(first.tag)) == 1)
    assert all_workers(first.tag) != before
    assert plan_of(second, plan_id)["attempt"] == 2
    assert second.ask("POST", f"/v1/plans/{plan_id}/cancel")[0] == 202
    until(lambda: not all_workers(first.tag))


def test_an_upgrade_takes_over_when_the_last_of_the_old_has_left(cluster: Cluster) -> None:
    tag, settings = new_tag(), {"database": cluster.url, "num_searches": 1}
    old = Server(tag, "hang", job_version="1", **settings).until_ready()
    new = Server(tag, "steps", job_version="2", **settings).until_ready()
    try:
        ids = [ask(old), ask(old)]
        until(lambda: len(old.workers()) == 1)
        # The second is queued for servers of version 1, one of which lives: nobody else takes it.
        assert sorted(plan_of(new, plan_id)["state"] for plan_id in ids) == ["queued", "running"]
        assert old.stop() == 0
        until(lambda: {plan_of(new, plan_id)["state"] for plan_id in ids} == {"succeeded"})
        assert attempts(new, ids) == [1, 2]
    finally:
        old.kill()
        new.kill()


def test_a_dump_is_restored_into_an_empty_database(pair: tuple[Server, Server], cluster: Cluster) -> None:
    ids = [ask(pair[0]) for _ in range(3)]
    until(lambda: len(all_workers(pair[0].tag)) == 2)
    url = cluster.restore(cluster.dump(), "restored")
    server = Server(new_tag(), "steps", database=url).until_ready()
    try:
        until(lambda: {plan_of(server, plan_id)["state"] for plan_id in ids} == {"succeeded"})
        assert attempts(server, ids) == [1, 2, 2]  # those that ran when it was taken run again
    finally:
        server.kill()


def test_one_key_given_to_both_at_once_makes_one_plan(pair: tuple[Server, Server]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def post(number: int) -> str:
        headers = {"Idempotency_Key": "together", "Prefer": "wait=0"}
        status, plan = pair[number % 2].ask("POST", "/v1/plans", question(2), **headers)
        assert status == 202, plan
        return str(plan["id"])

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(post, range(8)))) == 1
