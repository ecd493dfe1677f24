"""Plans as the servers that search them see them. Every write is fenced: it holds only while this attempt of this
executor owns the plan, so a server that was given up for dead can no longer touch it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select

from api.store.changes import INCUMBENT, PROGRESS, PlanRow, change, dump, move
from api.store.database import Database
from api.store.moves import State
from api.store.plans import NO_PROGRESS
from api.store.tables import executors, plans
from planner.plan_file import now_text

Entry = tuple[str, int]
"""A plan and the number of its entry in the queue."""

MAX_ROWS: Final = 1000
MAX_ATTEMPTS: Final = 20
"""Servers that may die under a plan before it is the suspect."""
_GAVE_UP: Final = {
    "code": "worker_died",
    "detail": f"{MAX_ATTEMPTS} servers died while they searched this plan; look at their memory",
    "pointer": "",
    "allowed": [],
}


def job_id(plan_id: str, job_number: int) -> str:
    """The name of a plan's entry in the queue; a new one for every time it is queued."""
    return f"{plan_id}-{job_number}"


def count(database: Database, state: State) -> int:
    """Plans in a state."""
    with database.read() as connection:
        query = select(func.count()).select_from(plans).where(plans.c.state == state.value)
        return connection.scalar(query) or 0


def entry_of(name: str) -> Entry:
    """The plan and number in the name of an entry."""
    plan_id, _, number = name.rpartition("-")
    return plan_id, int(number)


class PlanJobs:
    """One executor's view; every call is one transaction and blocks."""

    def __init__(self, database: Database, executor_id: str) -> None:
        self._database = database
        self.executor_id = executor_id

    def register(self, job_version: str, host: str, pid: int) -> None:
        """Note that this executor lives; its lease says when it no longer does."""
        values = {"id": self.executor_id, "job_version": job_version, "host": host, "pid": pid}
        with self._database.write() as connection:
            connection.execute(insert(executors).values(**values, started_at=now_text()))

    def unregister(self) -> None:
        """Note that this executor has left in order."""
        with self._database.write() as connection:
            connection.execute(delete(executors).where(executors.c.id == self.executor_id))

    def begin(self, plan_id: str, job_number: int) -> PlanRow | None:
        """Take a queued plan; None where it was cancelled, deleted or queued anew."""
        values = {"executor": self.executor_id, "progress": NO_PROGRESS, "started_at": now_text()}
        with self._database.write() as connection:
            mine = (plans.c.job_number == job_number,)
            return move(connection, plan_id, State.RUNNING, values, mine)

    def owns(self, plan_id: str, attempt: int) -> bool:
        """Whether an attempt is still this executor's."""
        with self._database.read() as connection:
            found = select(plans.c.id).where(plans.c.id == plan_id, *self._mine(attempt))
            return connection.execute(found).one_or_none() is not None

    def progress(
        self, plan_id: str, attempt: int, progress: Mapping[str, Any], *, is_incumbent: bool
    ) -> bool:
        """Write how far a search is; False where the plan is no longer this executor's."""
        values = {"progress": dump(dict(progress))}
        happened = [(PROGRESS, progress), *([(INCUMBENT, progress)] if is_incumbent else [])]
        with self._database.write() as connection:
            return change(connection, plan_id, values, self._mine(attempt), happened) is not None

    def finish(self, plan_id: str, attempt: int, to: State, values: Mapping[str, Any]) -> bool:
        """End a plan; False where it is no longer this executor's."""
        with self._database.write() as connection:
            return move(connection, plan_id, to, values, self._mine(attempt)) is not None

    def requeue(self, plan_id: str, attempt: int) -> bool:
        """Give a plan back; any server may take it. False where it is no longer this executor's."""
        with self._database.write() as connection:
            return requeue(connection, plan_id, self._mine(attempt))

    def running(self) -> list[Entry]:
        """Plans that run here by the database, with their attempts."""
        mine = (plans.c.executor == self.executor_id, plans.c.state == State.RUNNING.value)
        with self._database.read() as connection:
            return [(row.id, row.attempt) for row in connection.execute(select(plans).where(*mine))]

    def unqueued(self) -> list[Entry]:
        """Queued plans that are not in the queue yet, oldest first, with their job numbers."""
        wanted = select(plans.c.id, plans.c.job_number).where(
            plans.c.state == State.QUEUED.value, plans.c.job_version.is_(None)
        )
        with self._database.read() as connection:
            rows = connection.execute(wanted.order_by(plans.c.created_at, plans.c.id).limit(MAX_ROWS))
            return [(row.id, row.job_number) for row in rows]

    def mark_queued(self, plan_id: str, job_number: int, job_version: str) -> None:
        """Note that a plan's entry is in the queue."""
        same = (plans.c.id == plan_id, plans.c.job_number == job_number)
        with self._database.write() as connection:
            connection.execute(plans.update().where(*same).values(job_version=job_version))

    def queued(self, *where: ColumnElement[bool]) -> list[Entry]:
        """Plans whose entry should be in the queue, with their job numbers."""
        wanted = select(plans.c.id, plans.c.job_number).where(
            plans.c.state == State.QUEUED.value, plans.c.job_version.is_not(None), *where
        )
        with self._database.read() as connection:
            return [(row.id, row.job_number) for row in connection.execute(wanted.limit(MAX_ROWS))]

    def stranded(self) -> list[Entry]:
        """Queued plans whose entry only servers of a job version could take that none runs any more."""
        living = select(executors.c.job_version)
        return self.queued(plans.c.job_version.not_in(living))

    def renumber(self, entries: Sequence[Entry]) -> None:
        """Give up entries of the queue: their plans are queued anew, the attempt stays."""
        with self._database.write() as connection:
            _renumber(connection, entries)

    def has_unknown(self) -> bool:
        """Whether a plan runs on an executor that is not registered."""
        with self._database.read() as connection:
            return connection.execute(select(plans.c.id).where(*_NOBODYS).limit(1)).one_or_none() is not None

    def others(self) -> list[str]:
        """Every other executor that has registered."""
        with self._database.read() as connection:
            wanted = select(executors.c.id).where(executors.c.id != self.executor_id)
            return list(connection.scalars(wanted))

    def _mine(self, attempt: int) -> tuple[ColumnElement[bool], ...]:
        return (
            plans.c.state == State.RUNNING.value,
            plans.c.attempt == attempt,
            plans.c.executor == self.executor_id,
        )


def requeue(connection: Connection, plan_id: str, only_if: Sequence[ColumnElement[bool]]) -> bool:
    """Back to the queue as a new attempt with a new entry."""
    values = {
        "attempt": plans.c.attempt + 1,
        "job_number": plans.c.job_number + 1,
        "job_version": None,
        "executor": None,
    }
    return move(connection, plan_id, State.QUEUED, values, only_if) is not None


def take_over(connection: Connection, executor_id: str, taken: Sequence[Entry]) -> list[Entry]:
    """Requeue what a dead executor ran or had taken, and forget it; the entries that this made void."""
    theirs = (plans.c.executor == executor_id, plans.c.state == State.RUNNING.value)
    void = _requeue_all(connection, theirs)
    _renumber(connection, taken)
    void += [entry for entry in taken if entry not in void]
    connection.execute(delete(executors).where(executors.c.id == executor_id))
    return void


def take_over_unknown(connection: Connection) -> list[Entry]:
    """Requeue what runs on executors that are not registered, as after a restore from a backup."""
    return _requeue_all(connection, _NOBODYS)


def _renumber(connection: Connection, entries: Sequence[Entry]) -> None:
    for plan_id, job_number in entries:
        same = (plans.c.state == State.QUEUED.value, plans.c.job_number == job_number)
        change(connection, plan_id, {"job_number": job_number + 1, "job_version": None}, same)


def _requeue_all(connection: Connection, where: Sequence[ColumnElement[bool]]) -> list[Entry]:
    found = list(connection.execute(select(plans.c.id, plans.c.job_number, plans.c.attempt).where(*where)))
    for row in found:
        if row.attempt < MAX_ATTEMPTS:
            requeue(connection, row.id, where)
        else:
            move(connection, row.id, State.FAILED, {"problem": dump(_GAVE_UP)}, where)
    return [(row.id, row.job_number) for row in found]


_NOBODYS: Final = (
    plans.c.state == State.RUNNING.value,
    or_(plans.c.executor.is_(None), plans.c.executor.not_in(select(executors.c.id))),
)
