"""What one server does for the others' plans, with a queue that is only a list: who is dead, what is queued anew."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from api.jobs.lease import FileLease
from api.jobs.rescue import Rescue
from api.store import Database
from api.store.moves import State
from api.store.plan_jobs import MAX_ATTEMPTS, PlanJobs, entry_of, job_id
from api.store.plans import NewPlan, Plans
from api.store.tables import executors, plans


class ListedQueue:
    """Entries by name; `taken` are those that an executor took and has not finished."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.taken: dict[str, list[str]] = {}
        self.cancelled: list[str] = []

    def put(self, name: str, plan_id: str, job_number: int) -> None:
        assert entry_of(name) == (plan_id, job_number)
        if name not in self.names:
            self.names.append(name)

    def cancel(self, names: list[str]) -> None:
        self.cancelled += names

    def missing(self, names: list[str]) -> set[str]:
        return set(names) - set(self.names)

    def taken_by(self, executor_id: str) -> list[str]:
        return self.taken.get(executor_id, [])


class Life:
    """One server's part of the story."""

    def __init__(self, database: Database, name: str, queue: ListedQueue, version: str = "1") -> None:
        self.queue = queue
        self.plans = PlanJobs(database, name)
        self.lease = FileLease(database, name)
        self.lease.hold()
        self.plans.register(version, "host", 1)
        self.rescue = Rescue(database, self.plans, self.lease, queue, version)  # type: ignore[arg-type]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(None, tmp_path)
    yield database
    database.close()


Begin = Callable[..., Life]


@pytest.fixture
def begin(database: Database) -> Iterator[Begin]:
    """Servers of one queue, by name and job version; all leave in the end."""
    queue, lives = ListedQueue(), []

    def life(name: str, version: str = "1") -> Life:
        lives.append(Life(database, name, queue, version))
        return lives[-1]

    yield life
    for each in lives:
        each.lease.release()


def new_plan(database: Database, name: str) -> None:
    Plans(database, 100).create(NewPlan(name, None, (), None, None, "{}", ""), None)


def found(database: Database, name: str) -> tuple[str, int, int, str | None]:
    row = Plans(database, 100).get(name)
    assert row is not None
    return row.state, row.attempt, row.job_number, row.executor


def test_only_a_dead_servers_plans_are_queued_anew(database: Database, begin: Begin) -> None:
    dead, alive, helper = begin("dead"), begin("alive"), begin("helper")
    queue = helper.queue
    for name in "abc":
        new_plan(database, name)
    assert helper.rescue.sweep() == 3
    assert dead.plans.begin("a", 1) is not None
    assert alive.plans.begin("b", 1) is not None
    dead.lease.release()
    assert helper.rescue.sweep() == 1
    assert found(database, "a") == ("queued", 2, 2, None)
    assert found(database, "b") == ("running", 1, 1, "alive")
    assert found(database, "c") == ("queued", 1, 1, None)
    assert queue.names == ["a-1", "b-1", "c-1", "a-2"]
    assert queue.cancelled == ["a-1"]
    assert helper.rescue.sweep() == 0
    # The dead one wakes up: whatever it writes about its attempt is not taken.
    assert not dead.plans.progress("a", 1, {}, is_incumbent=True)
    assert not dead.plans.finish("a", 1, State.SUCCEEDED, {})
    assert not dead.plans.requeue("a", 1)
    assert dead.plans.begin("a", 1) is None
    assert helper.plans.begin("a", 2) is not None


def test_an_entry_that_was_taken_but_not_begun_is_queued_anew(database: Database, begin: Begin) -> None:
    dead, helper = begin("dead"), begin("helper")
    queue = helper.queue
    new_plan(database, "a")
    helper.rescue.sweep()
    queue.taken["dead"] = ["a-1"]
    dead.lease.release()
    assert helper.rescue.sweep() == 1
    assert found(database, "a") == ("queued", 1, 2, None)  # it never ran: still the first attempt
    assert queue.names == ["a-1", "a-2"]


def test_a_cancelled_plan_is_never_taken(database: Database, begin: Begin) -> None:
    dead, helper = begin("dead"), begin("helper")
    queue = helper.queue
    for name in "ab":
        new_plan(database, name)
    helper.rescue.sweep()
    dead.plans.begin("a", 1)
    Plans(database, 100).cancel("a")
    Plans(database, 100).cancel("b")
    dead.lease.release()
    helper.rescue.sweep()
    assert not dead.plans.owns("a", 1)
    for name in "ab":
        assert found(database, name)[0] == "cancelled"
        assert helper.plans.begin(name, 1) is None
    assert queue.names == ["a-1", "b-1"]


def test_entries_of_a_version_that_nobody_runs_are_adopted(database: Database, begin: Begin) -> None:
    old, new = begin("old", "1"), begin("new", "2")
    queue = new.queue
    new_plan(database, "a")
    old.rescue.sweep()
    assert new.rescue.sweep() == 0  # the old one lives and will take it
    old.lease.release()
    assert new.rescue.sweep() == 1
    assert found(database, "a") == ("queued", 1, 2, None)
    assert (queue.names, queue.cancelled) == (["a-1", "a-2"], ["a-1"])


def test_a_lost_queue_is_made_again(database: Database, begin: Begin) -> None:
    life = begin("a")
    queue = life.queue
    for name in "xy":
        new_plan(database, name)
    life.rescue.sweep()
    queue.names.remove("y-1")
    life.rescue.check_entries()
    assert life.rescue.sweep() == 1
    assert queue.names == ["x-1", "y-2"]


def test_a_plan_of_a_server_that_nobody_knows_goes_on(database: Database, begin: Begin) -> None:
    # As after a restore: the plan runs by the backup, its server is not registered.
    life = begin("a")
    new_plan(database, "x")
    with database.write() as connection:
        connection.execute(update(plans).values(state="running", executor="gone"))
    assert life.rescue.sweep() == 1
    assert found(database, "x") == ("queued", 2, 2, None)


def test_a_plan_that_kills_every_server_is_given_up(database: Database, begin: Begin) -> None:
    dead, helper = begin("dead"), begin("helper")
    new_plan(database, "x")
    helper.rescue.sweep()
    dead.plans.begin("x", 1)
    with database.write() as connection:
        connection.execute(update(plans).values(attempt=MAX_ATTEMPTS))
    dead.lease.release()
    assert helper.rescue.sweep() == 0
    row = Plans(database, 100).get("x")
    assert row is not None
    assert row.state == "failed"
    assert '"worker_died"' in row.problem


def test_a_lease_is_one_processes(database: Database) -> None:
    first, second = FileLease(database, "a"), FileLease(database, "a")
    first.hold()
    with pytest.raises(RuntimeError):
        second.hold()
    with second.if_dead("a") as connection:
        assert connection is None
    assert first.is_held()
    first.release()
    assert not first.is_held()
    with second.if_dead("a") as connection:
        assert connection is not None
        assert connection.execute(executors.select()).all() == []


def test_names_of_entries_are_read_back() -> None:
    assert entry_of(job_id("plan_a-b", 12)) == ("plan_a-b", 12)
