"""Servers are killed and no plan is lost, searched to another end, or left with a process (tests/api/jobs/kills.py)."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.api.fake_worker import document
from tests.api.jobs.kills import Story, new_tag, timeless, undisturbed
from tests.api.jobs.postgres import Cluster, private_cluster
from tests.api.jobs.servers import Server

SEED = 20261201


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with private_cluster() as running:
        yield running


def on_sqlite(folder: Path, fake: str = "") -> Story:
    """One server of a SQLite file."""
    tag = new_tag()
    expected = answer_of_the_fake if fake else undisturbed
    return Story(lambda version: Server(tag, fake, data_dir=folder, job_version=version), expected, tag, SEED)


def on_postgresql(url: str) -> Story:
    """Two replicas of a PostgreSQL database; one search at a time each, so that both have work."""
    tag, settings = new_tag(), {"database": url, "num_searches": 1}
    start = partial(Server, tag, "", **settings)
    return Story(lambda version: start(job_version=version), undisturbed, tag, SEED, num_servers=2)


def answer_of_the_fake(_seed: int) -> object:
    return timeless(document({})["result"])


def test_a_server_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with on_sqlite(tmp_path, "steps") as story:
        story.kill_at_work()
        story.close()
        assert story.with_worker == 1


@pytest.mark.system
def test_a_few_kills_of_one_server(tmp_path: Path) -> None:
    with on_sqlite(tmp_path) as alone:
        for kill in (alone.kill_at_work, alone.kill_while_it_stops, alone.kill_at_work):
            kill()
        alone.close()


@pytest.mark.system
def test_a_few_kills_of_two_replicas(cluster: Cluster) -> None:
    with on_postgresql(cluster.url) as replicas:
        for kill in (replicas.kill_at_work, replicas.kill_while_it_stops, replicas.kill_at_work):
            kill()
        replicas.close()


@pytest.mark.matrix
def test_a_hundred_kills(
    tmp_path: Path, cluster: Cluster, record_property: Callable[[str, object], None]
) -> None:
    with on_sqlite(tmp_path) as alone:
        for number in range(70):
            alone.kill_at_work() if number % 7 < 5 else alone.kill_while_it_stops()
        alone.close()
    with on_postgresql(cluster.url) as replicas:
        for number in range(30):
            replicas.kill_at_work() if number % 3 else replicas.kill_while_it_stops()
        replicas.close()
    for name, story in (("one server", alone), ("two replicas", replicas)):
        record_property(f"{name}: plans", len(story.given))
        record_property(f"{name}: kills", str(story.kills))
        record_property(f"{name}: kills with a search", story.with_worker)
    # at least 40 while a worker runs, 20 while it stops or is upgraded, 20 of one of two replicas
    assert alone.with_worker + replicas.with_worker >= 40
    assert alone.kills["stopping"] + replicas.kills["stopping"] >= 20
    assert sum(replicas.kills.values()) >= 20
