"""What is forgotten: plans that ended long ago, the oldest of what exceeds the quota, expired idempotency keys.

Live plans and plans with runs are kept.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection, func, select

from api.store.database import Database
from api.store.idempotency import forget_expired
from api.store.moves import State
from api.store.plans import erase
from api.store.tables import plans, runs

BATCH: Final = 200
EVENT_BYTES: Final = 400
"""About what an event takes in the database."""


def forget_old(database: Database, keep_days: float, max_bytes: int) -> int:
    """Delete what need not be kept; how many plans went."""
    with database.write() as connection:
        forget_expired(connection)
    num_forgotten = 0
    while True:
        with database.write() as connection:
            batch = _too_old(connection, keep_days) or _too_much(connection, max_bytes)
            erase(connection, batch)
        num_forgotten += len(batch)
        if len(batch) < BATCH:
            return num_forgotten


def _too_old(connection: Connection, keep_days: float) -> list[str]:
    oldest = datetime.now(UTC) - timedelta(days=keep_days)
    text = oldest.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    wanted = select(plans.c.id).where(*_IS_FREE, plans.c.ended_at < text)
    return list(connection.scalars(wanted.limit(BATCH)))


def _too_much(connection: Connection, max_bytes: int) -> list[str]:
    """The oldest plans, as many as bring the total under the quota."""
    size = plans.c.num_bytes + plans.c.last_event * EVENT_BYTES
    excess = (connection.scalar(select(func.sum(size))) or 0) - max_bytes
    if excess <= 0:
        return []
    oldest_first = select(plans.c.id, size.label("size")).where(*_IS_FREE).order_by(plans.c.ended_at)
    batch: list[str] = []
    for row in connection.execute(oldest_first.limit(BATCH)):
        if excess <= 0:
            break
        batch.append(row.id)
        excess -= row.size
    return batch


_IS_FREE: Final = (
    plans.c.state.in_([state.value for state in State if state.is_final]),
    plans.c.id.not_in(select(runs.c.plan_id)),
)
