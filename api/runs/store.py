"""Runs in the database: made, listed, and moved along legal moves only, each move one conditional update."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, func, insert, select, tuple_, update

from api.errors import Problem
from api.runs.states import LIVE, RunState
from api.store.changes import dump
from api.store.cursor import cursor_of, position_of
from api.store.database import Database
from api.store.tables import runs
from planner.plan_file import now_text

RETRY_AFTER_S: Final = 30
RunRow = Row[Any]


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is asked for; `request` is JSON text, `details` what the server keeps beside it."""

    id: str
    plan_id: str
    launcher: str
    request: str
    key_id: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What listed runs have in common; `key_ids` None asks for everybody's."""

    plan_id: str | None = None
    state: str | None = None
    key_ids: Sequence[str] | None = None


class Runs:
    """Runs of one database; every call is one transaction and blocks."""

    def __init__(self, database: Database, max_queued: int) -> None:
        self._database = database
        self._max_queued = max_queued

    def create(self, run: NewRun) -> RunRow:
        """A new queued run; raises Problem 429 where too many wait."""
        values = {
            "id": run.id,
            "plan_id": run.plan_id,
            "state": RunState.QUEUED.value,
            "attempt": 1,
            "revision": 1,
            "launcher": run.launcher,
            "request": run.request,
            "details": dump(dict(run.details)),
            "created_at": now_text(),
            "key_id": run.key_id,
        }
        queued = select(func.count()).select_from(runs).where(runs.c.state == RunState.QUEUED.value)
        with self._database.write() as connection:
            num_queued = connection.scalar(queued) or 0
            if num_queued >= self._max_queued:
                detail = f"{num_queued} runs are queued already; ask again in {RETRY_AFTER_S} s"
                raise Problem(429, "too_many_requests", detail, headers={"Retry-After": str(RETRY_AFTER_S)})
            return connection.execute(insert(runs).values(values).returning(runs)).one()

    def get(self, run_id: str) -> RunRow | None:
        """A run by its id."""
        with self._database.read() as connection:
            return connection.execute(select(runs).where(runs.c.id == run_id)).one_or_none()

    def live(self) -> list[RunRow]:
        """Runs that have not ended, oldest first."""
        wanted = select(runs).where(runs.c.state.in_(LIVE)).order_by(runs.c.created_at, runs.c.id)
        with self._database.read() as connection:
            return list(connection.execute(wanted))

    def ended_among(self, run_ids: Sequence[str]) -> set[str]:
        """Which of these are in a final state, or unknown."""
        wanted = select(runs.c.id).where(runs.c.id.in_(list(run_ids)), runs.c.state.in_(LIVE))
        with self._database.read() as connection:
            return set(run_ids) - {row.id for row in connection.execute(wanted)}

    def move(
        self,
        run_id: str,
        to: RunState,
        values: Mapping[str, Any] | None = None,
        only_if: Sequence[ColumnElement[bool]] = (),
    ) -> RunRow | None:
        """Bring a run to a state from any that may precede it; None where the move is not legal."""
        times: dict[str, Any] = {"ended_at": now_text()} if to.is_final else {}
        stored = {**times, **(values or {}), "state": to.value, "revision": runs.c.revision + 1}
        legal = (runs.c.id == run_id, runs.c.state.in_(to.sources), *only_if)
        with self._database.write() as connection:
            return connection.execute(update(runs).where(*legal).values(stored).returning(runs)).one_or_none()

    def note(
        self, run_id: str, values: Mapping[str, Any], only_if: Sequence[ColumnElement[bool]] = ()
    ) -> bool:
        """Change what is known of a live run, its state aside; whether it was changed."""
        live = (runs.c.id == run_id, runs.c.state.in_(LIVE), *only_if)
        with self._database.write() as connection:
            return connection.execute(update(runs).where(*live).values(dict(values))).rowcount > 0

    def cancel(self, run_id: str) -> tuple[RunRow, bool]:
        """Ask for a run's end; False with it where it was cancelled before. Raises Problem 409 where it has ended."""
        moved = self.move(run_id, RunState.CANCELLED, None, (runs.c.state == RunState.QUEUED.value,))
        moved = moved or self.move(run_id, RunState.CANCELLING)
        if moved is not None:
            return moved, True
        row = self.get(run_id)
        if row is None:
            raise Problem(404, "not_found", "no such run")
        if row.state == RunState.CANCELLING:
            return row, True
        if row.state == RunState.CANCELLED:
            return row, False
        raise Problem(409, "illegal_transition", f"the run has {row.state}; only a live run is cancelled")

    def find(self, wanted: RunFilter, limit: int, cursor: str | None) -> tuple[list[RunRow], str | None]:
        """A page of runs, newest first, and the cursor of the next page, None after the last."""
        where: list[ColumnElement[bool]] = []
        if wanted.plan_id is not None:
            where.append(runs.c.plan_id == wanted.plan_id)
        if wanted.state is not None:
            where.append(runs.c.state == wanted.state)
        if wanted.key_ids is not None:
            where.append(runs.c.key_id.in_(list(wanted.key_ids)))
        if cursor is not None:
            where.append(tuple_(runs.c.created_at, runs.c.id) < tuple_(*position_of(cursor)))
        query = select(runs).where(*where).order_by(runs.c.created_at.desc(), runs.c.id.desc())
        with self._database.read() as connection:
            rows = list(connection.execute(query.limit(limit + 1)))
        page = rows[:limit]
        return page, cursor_of(page[-1].created_at, page[-1].id) if len(rows) > limit else None


def details_of(row: RunRow) -> dict[str, Any]:
    """What the server keeps beside a run."""
    details: dict[str, Any] = json.loads(row.details)
    return details
