"""What is forgotten: old plans, the oldest above the quota, expired keys; never live plans."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from api.errors import Problem
from api.store import Database
from api.store.changes import move
from api.store.idempotency import Once
from api.store.moves import State
from api.store.plans import NewPlan, Plans
from api.store.retention import forget_old
from api.store.tables import events, idempotency_keys, plans, runs

KEEP_ALL = 10**9


def days_ago(days: float) -> str:
    return (
        (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def filled(path: Path) -> tuple[Database, Plans]:
    """Plans a, b, c that ended 1, 2 and 3 days ago, and d, which is queued; 100 bytes each."""
    database = Database(None, path)
    store = Plans(database, 10)
    for name in "abcd":
        store.create(NewPlan(name, name, ("t",), None, None, "{}", ""), None)
    with database.write() as connection:
        for days, name in enumerate("abc", start=1):
            move(connection, name, State.CANCELLED, {})
            connection.execute(plans.update().where(plans.c.id == name).values(ended_at=days_ago(days)))
        connection.execute(plans.update().values(num_bytes=100, last_event=0))
    return database, store


def kept(database: Database) -> list[str]:
    with database.read() as connection:
        return sorted(connection.scalars(select(plans.c.id)))


def test_what_ended_long_ago_goes(tmp_path: Path) -> None:
    database, _ = filled(tmp_path)
    assert forget_old(database, 1.5, KEEP_ALL) == 2
    assert kept(database) == ["a", "d"]
    with database.read() as connection:
        assert set(connection.scalars(select(events.c.subject_id))) == {"a", "d"}
    database.close()


def test_the_oldest_go_until_the_rest_fits(tmp_path: Path) -> None:
    database, _ = filled(tmp_path)
    # 400 bytes of 250 allowed: two plans of 100 bytes go, the oldest first.
    assert forget_old(database, 90, 250) == 2
    assert kept(database) == ["a", "d"]
    assert forget_old(database, 90, 0) == 1  # the live plan stays whatever the quota
    assert kept(database) == ["d"]
    database.close()


def test_a_plan_with_runs_stays(tmp_path: Path) -> None:
    database, store = filled(tmp_path)
    row = {"id": "r", "plan_id": "c", "state": "succeeded", "attempt": 1, "revision": 1}
    texts = {"launcher": "local", "request": "{}", "details": "{}", "created_at": days_ago(3)}
    with database.write() as connection:
        connection.execute(runs.insert().values(**row, **texts))
    forget_old(database, 0.5, KEEP_ALL)
    assert kept(database) == ["c", "d"]
    with pytest.raises(Problem) as caught:
        store.delete("c")
    assert caught.value.status_code == 409
    database.close()


def test_an_idempotency_key_is_free_again_after_a_day(tmp_path: Path) -> None:
    database, store = filled(tmp_path)
    once = Once("", "plans k", "0" * 64)
    first, _ = store.create(NewPlan("e", None, (), None, None, "{}", ""), once)
    again, is_replayed = store.create(NewPlan("f", None, (), None, None, "{}", ""), once)
    assert (again.id, is_replayed) == (first.id, True)
    with database.write() as connection:
        connection.execute(idempotency_keys.update().values(created_at=days_ago(1.01)))
    late, is_replayed = store.create(NewPlan("g", None, (), None, None, "{}", ""), once)
    assert (late.id, is_replayed) == ("g", False)
    with database.write() as connection:
        connection.execute(idempotency_keys.update().values(created_at=days_ago(1.01)))
    forget_old(database, 90, KEEP_ALL)
    with database.read() as connection:
        assert connection.scalar(select(func.count()).select_from(idempotency_keys)) == 0
    database.close()
