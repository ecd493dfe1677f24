"""Idempotency keys: for 24 hours the same key of the same caller names the same resource."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from api.errors import Problem
from api.store.tables import idempotency_keys
from planner.plan_file import now_text

KEPT: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Once:
    """A key given by a caller (the id of its API key) and the SHA-256 of what it asked."""

    owner: str
    key: str
    body_sha256: str


def replayed(connection: Connection, once: Once) -> str | None:
    """The resource that the key made before; raises Problem 409 where it asked something else."""
    table = idempotency_keys.c
    wanted = select(table.body_sha256, table.resource_id).where(
        table.owner == once.owner, table.key == once.key, table.created_at >= _oldest()
    )
    row = connection.execute(wanted).one_or_none()
    if row is None:
        return None
    if row.body_sha256 != once.body_sha256:
        raise Problem(
            409, "idempotency_conflict", "the idempotency key was used with another body; use a new key"
        )
    return str(row.resource_id)


def remember(connection: Connection, once: Once, resource_id: str) -> None:
    """Tie a key to a resource; one that has expired is taken over."""
    forget_key(connection, once, only_expired=True)
    values = {"owner": once.owner, "key": once.key, "body_sha256": once.body_sha256}
    connection.execute(
        insert(idempotency_keys).values(**values, resource_id=resource_id, created_at=now_text())
    )


def forget_key(connection: Connection, once: Once | None, *, only_expired: bool = False) -> None:
    """Delete a key."""
    if once is None:
        return
    table = idempotency_keys.c
    same = delete(idempotency_keys).where(table.owner == once.owner, table.key == once.key)
    connection.execute(same.where(table.created_at < _oldest()) if only_expired else same)


def forget_expired(connection: Connection) -> None:
    """Delete every key that has expired."""
    connection.execute(delete(idempotency_keys).where(idempotency_keys.c.created_at < _oldest()))


def _oldest() -> str:
    oldest = datetime.now(UTC) - KEPT
    return oldest.isoformat(timespec="milliseconds").replace("+00:00", "Z")
