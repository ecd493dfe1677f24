"""Plans in the database as requests see them: create, read, rename, cancel, delete."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from api.errors import Problem
from api.store.changes import STATE, PlanRow, change, dump, move, note
from api.store.database import Database
from api.store.idempotency import Once, forget_key, remember, replayed
from api.store.moves import State
from api.store.tables import events, plan_tags, plans, runs
from planner.plan_file import SCHEMA_VERSION, now_text

NO_PROGRESS: Final = dump(
    {"lower_bound_s": None, "best_step_s": None, "gap": None, "meshes_done": 0, "meshes_total": 0}
)
QUEUE_RETRY_AFTER_S: Final = 5


@dataclass(frozen=True, slots=True)
class NewPlan:
    """A plan that is asked for; `request` is JSON text with model and cluster spelt out."""

    id: str
    name: str | None
    tags: tuple[str, ...]
    model: str | None
    cluster: str | None
    request: str
    key_id: str


class Plans:
    """Plans of one database; every call is one transaction and blocks."""

    def __init__(self, database: Database, max_queued: int) -> None:
        self._database = database
        self._max_queued = max_queued

    def create(self, plan: NewPlan, once: Once | None) -> tuple[PlanRow, bool]:
        """A new queued plan, or the one that the same idempotency key made (and True); raises Problem 409, 429."""
        try:
            return self._create(plan, once)
        except IntegrityError:
            # The same key arrived twice at once: the other request made the plan.
            return self._create(plan, once)

    def get(self, plan_id: str) -> PlanRow | None:
        """A plan by its id."""
        with self._database.read() as connection:
            return _get(connection, plan_id)

    def update(self, plan_id: str, revision: int | None, values: Mapping[str, Any]) -> PlanRow:
        """Change name or tags; raises Problem 404, or 412 where the plan is not at `revision`."""
        with self._database.write() as connection:
            row = _found(_get(connection, plan_id))
            if revision is not None and row.revision != revision:
                raise Problem(412, "precondition_failed", "the plan has changed; read it again for its ETag")
            stored = dict(values)
            if "tags" in values:
                _set_tags(connection, plan_id, values["tags"])
                stored["tags"] = dump(values["tags"])
            changed = change(connection, plan_id, stored)
            return _found(changed)

    def cancel(self, plan_id: str) -> tuple[PlanRow, bool]:
        """Cancel a plan; False with it where it already was. Raises Problem 404, or 409 where it has ended."""
        with self._database.write() as connection:
            moved = move(connection, plan_id, State.CANCELLED, {"problem": None})
            if moved is not None:
                return moved, True
            row = _found(_get(connection, plan_id))
            if row.state == State.CANCELLED:
                return row, False
            raise Problem(
                409, "illegal_transition", f"the plan has {row.state}; only a live plan is cancelled"
            )

    def delete(self, plan_id: str) -> None:
        """Forget a plan; raises Problem 404, or 409 while it is live or has runs."""
        with self._database.write() as connection:
            row = _found(_get(connection, plan_id))
            if not State(row.state).is_final:
                raise Problem(409, "illegal_transition", f"the plan is {row.state}; cancel it first")
            num_runs = connection.scalar(
                select(func.count()).select_from(runs).where(runs.c.plan_id == plan_id)
            )
            if num_runs:
                raise Problem(409, "illegal_transition", f"the plan has {num_runs} runs, which keep it")
            erase(connection, [plan_id])

    def _create(self, plan: NewPlan, once: Once | None) -> tuple[PlanRow, bool]:
        with self._database.write() as connection:
            known = replayed(connection, once) if once else None
            if known is not None:
                row = _get(connection, known)
                if row is not None:
                    return row, True
                forget_key(connection, once)  # the plan was deleted since
            self._check_queue(connection)
            if once is not None:
                remember(connection, once, plan.id)
            row = connection.execute(insert(plans).values(_values(plan)).returning(plans)).one()
            _set_tags(connection, plan.id, plan.tags)
            note(connection, row, [(STATE, {"state": State.QUEUED.value})])
            return row, False

    def _check_queue(self, connection: Connection) -> None:
        queued = select(func.count()).select_from(plans).where(plans.c.state == State.QUEUED.value)
        num_queued = connection.scalar(queued) or 0
        if num_queued >= self._max_queued:
            detail = f"{num_queued} plans are queued already; ask again in {QUEUE_RETRY_AFTER_S} s"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": str(QUEUE_RETRY_AFTER_S)})


def erase(connection: Connection, plan_ids: Sequence[str]) -> None:
    """Delete plans with their events and tags."""
    connection.execute(delete(events).where(events.c.subject_id.in_(plan_ids)))
    connection.execute(delete(plan_tags).where(plan_tags.c.plan_id.in_(plan_ids)))
    connection.execute(delete(plans).where(plans.c.id.in_(plan_ids)))


def etag_of(row: PlanRow) -> str:
    """The entity tag: it changes with every change of the plan."""
    return f'"{row.id[-12:]}-{row.revision}"'


def body_of(row: PlanRow) -> bytes:
    """The Plan object; what is stored as JSON is passed on as it stands."""
    texts = {
        "id": dump(row.id),
        "schema_version": str(SCHEMA_VERSION),
        "state": dump(row.state),
        "name": dump(row.name),
        "tags": row.tags,
        "request": row.request,
        "result": row.result or "null",
        "problem": row.problem or "null",
        "progress": row.progress,
        "attempt": str(row.attempt),
        "created_at": dump(row.created_at),
        "started_at": dump(row.started_at),
        "ended_at": dump(row.ended_at),
        "made_with": row.made_with,
        "links": dump(_links(row.id)),
    }
    return ("{" + ", ".join(f'"{key}": {text}' for key, text in texts.items()) + "}").encode("ascii")


def document_of(row: PlanRow) -> dict[str, Any]:
    """The Plan object as data."""
    document: dict[str, Any] = json.loads(body_of(row))
    return document


def _links(plan_id: str) -> dict[str, str]:
    base = f"/v1/plans/{plan_id}"
    return {"self": base, "events": f"{base}/events", "cancel": f"{base}/cancel", "runs": f"{base}/runs"}


def _values(plan: NewPlan) -> dict[str, Any]:
    return {
        "id": plan.id,
        "state": State.QUEUED.value,
        "attempt": 1,
        "revision": 1,
        "last_event": 1,
        "name": plan.name,
        "tags": dump(list(plan.tags)),
        "model": plan.model,
        "cluster": plan.cluster,
        "request": plan.request,
        "progress": NO_PROGRESS,
        "made_with": "{}",
        "created_at": now_text(),
        "key_id": plan.key_id,
        "job_number": 1,
        "num_bytes": len(plan.request),
    }


def _set_tags(connection: Connection, plan_id: str, tags: Sequence[str]) -> None:
    connection.execute(delete(plan_tags).where(plan_tags.c.plan_id == plan_id))
    if tags:
        rows = [{"plan_id": plan_id, "tag": tag} for tag in dict.fromkeys(tags)]
        connection.execute(insert(plan_tags), rows)


def _get(connection: Connection, plan_id: str) -> PlanRow | None:
    return connection.execute(select(plans).where(plans.c.id == plan_id)).one_or_none()


def _found(row: PlanRow | None) -> PlanRow:
    if row is None:
        raise Problem(404, "not_found", "no such plan; it may have been deleted, so plan again")
    return row
