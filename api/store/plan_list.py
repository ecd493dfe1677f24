"""Lists of plans: filters, newest first, page by page. A cursor names the last plan of a page."""

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, select, tuple_

from api.errors import Fault, Problem
from api.store.changes import PlanRow
from api.store.database import Database
from api.store.tables import plan_tags, plans

MAX_LIMIT: Final = 100
DEFAULT_LIMIT: Final = 20


@dataclass(frozen=True, slots=True)
class Filter:
    """What listed plans have in common; None asks for nothing."""

    name: str | None = None
    tag: str | None = None
    model: str | None = None
    cluster: str | None = None
    state: str | None = None
    key_ids: frozenset[str] | None = None
    """Keys whose plans are listed."""


def find(
    database: Database, wanted: Filter, limit: int, cursor: str | None
) -> tuple[list[PlanRow], str | None]:
    """A page of plans and the cursor of the next page, None after the last."""
    where = _conditions(wanted)
    if cursor is not None:
        where.append(tuple_(plans.c.created_at, plans.c.id) < tuple_(*_position(cursor)))
    query = select(plans).where(*where).order_by(plans.c.created_at.desc(), plans.c.id.desc())
    with database.read() as connection:
        rows = list(connection.execute(query.limit(limit + 1)))
    page = rows[:limit]
    return page, _cursor(page[-1]) if len(rows) > limit else None


def _conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    given = {"name": wanted.name, "model": wanted.model, "cluster": wanted.cluster, "state": wanted.state}
    where: list[ColumnElement[bool]] = [
        plans.c[key] == value for key, value in given.items() if value is not None
    ]
    if wanted.key_ids is not None:
        where.append(plans.c.key_id.in_(wanted.key_ids))
    if wanted.tag is not None:
        where.append(plans.c.id.in_(select(plan_tags.c.plan_id).where(plan_tags.c.tag == wanted.tag)))
    return where


def _cursor(row: PlanRow) -> str:
    return base64.urlsafe_b64encode(f"{row.created_at} {row.id}".encode("ascii")).decode("ascii").rstrip("=")


def _position(cursor: str) -> tuple[str, str]:
    """The time and id in a cursor; raises Problem 422."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        created_at, plan_id = (
            base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii").split(" ")
        )
    except (binascii.Error, ValueError):
        detail = "the cursor is none of this server's; take next_cursor of the page before"
        raise Problem(422, "invalid_request", detail, [Fault("/cursor", "invalid_request", detail)]) from None
    return created_at, plan_id
