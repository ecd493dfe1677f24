"""The one way in which a plan changes: a conditional update that numbers its events in the same transaction.

The row is locked by the update, so numbers rise without holes in the order of the commits, whichever server writes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from api.store.moves import State
from api.store.tables import events, plans
from planner.answers import finite
from planner.plan_file import now_text

STATE: Final = "state"
PROGRESS: Final = "progress"
INCUMBENT: Final = "incumbent"
END: Final = "end"

PlanRow = Row[Any]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a plan; numbers rise from 1."""

    number: int
    kind: str
    attempt: int
    data: str


def change(
    connection: Connection,
    plan_id: str,
    values: Mapping[str, Any],
    only_if: Sequence[ColumnElement[bool]] = (),
    happened: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> PlanRow | None:
    """Change a plan where all of `only_if` holds, and note what happened; None where nothing changed."""
    raised = {"revision": plans.c.revision + 1, "last_event": plans.c.last_event + len(happened)}
    statement = update(plans).where(plans.c.id == plan_id, *only_if).values({**values, **raised})
    row = connection.execute(statement.returning(plans)).one_or_none()
    if row is not None and happened:
        note(connection, row, happened)
    return row


def move(
    connection: Connection,
    plan_id: str,
    to: State,
    values: Mapping[str, Any],
    only_if: Sequence[ColumnElement[bool]] = (),
) -> PlanRow | None:
    """Bring a plan to a state from any that may precede it; None where the move is not legal or not meant."""
    legal = plans.c.state.in_(to.sources)
    times = {"ended_at": now_text(), "executor": None} if to.is_final else {}
    happened: list[tuple[str, Mapping[str, Any]]] = [(STATE, {"state": to.value})]
    if to.is_final:
        happened.append((END, {"state": to.value, **_outcome(values)}))
    return change(connection, plan_id, {**values, **times, "state": to.value}, (legal, *only_if), happened)


def note(connection: Connection, row: PlanRow, happened: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Write the events up to the row's `last_event`; each says the attempt that it belongs to."""
    first = row.last_event - len(happened) + 1
    at = now_text()
    connection.execute(
        insert(events),
        [
            {
                "subject_id": row.id,
                "number": first + index,
                "kind": kind,
                "attempt": row.attempt,
                "data": dump({"plan_id": row.id, "attempt": row.attempt, "at": at, **data}),
                "created_at": at,
            }
            for index, (kind, data) in enumerate(happened)
        ],
    )


def events_after(connection: Connection, plan_id: str, number: int) -> list[Event]:
    """Events of a plan that came later than one of them, in order."""
    columns = (events.c.number, events.c.kind, events.c.attempt, events.c.data)
    wanted = select(*columns).where(events.c.subject_id == plan_id, events.c.number > number)
    return [Event(*row) for row in connection.execute(wanted.order_by(events.c.number))]


def dump(value: object) -> str:
    """JSON in ASCII; numbers that are not finite are null."""
    return json.dumps(finite(value), allow_nan=False)


def _outcome(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the last event says about the result: its status, the bounds, or what went wrong."""
    result = json.loads(values["result"]) if values.get("result") else None
    outcome: dict[str, Any] = {"status": result["status"]} if result else {}
    if values.get("progress"):
        outcome |= json.loads(values["progress"])
    if values.get("problem"):
        outcome["problem"] = json.loads(values["problem"])
    return outcome
