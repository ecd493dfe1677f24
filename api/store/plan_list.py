"""Lists of plans: filters, newest first, page by page. A cursor names the last plan of a page."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, select, tuple_

from api.store.changes import PlanRow
from api.store.cursor import cursor_of, position_of
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
        where.append(tuple_(plans.c.created_at, plans.c.id) < tuple_(*position_of(cursor)))
    query = select(plans).where(*where).order_by(plans.c.created_at.desc(), plans.c.id.desc())
    with database.read() as connection:
        rows = list(connection.execute(query.limit(limit + 1)))
    page = rows[:limit]
    return page, cursor_of(page[-1].created_at, page[-1].id) if len(rows) > limit else None


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
