"""All keys of a server: those of its key file and those of its database, asked at most every few seconds."""

import hmac
import json
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Row, select, update

from api.keys import BOOTSTRAP, Caller, Scope, find_key, hash_key, new_key
from api.settings import Settings
from api.store import Database
from api.store.tables import api_keys
from planner.plan_file import now_text

FRESH_S: Final = 5.0
"""A revoked key is refused after this at the latest."""
USED_S: Final = 60.0
"""How exactly `last_used_at` is kept."""
MOST_KNOWN: Final = 10_000


@dataclass(frozen=True, slots=True)
class KeyLine:
    """A key as lists show it; the key itself is known to nobody."""

    id: str
    name: str
    scope: str
    created_at: str
    revoked_at: str | None
    last_used_at: str | None


class KeyRing:
    """Finds who asks; used from threads."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._database = database
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Caller | None]] = {}
        self._needs: tuple[float, bool] = (-FRESH_S, False)
        self._used: dict[str, float] = {}

    def needs_key(self) -> bool:
        """Whether requests carry a key: there is a key file, or the database has a key that is not revoked."""
        found = self.needs_key_known()
        if found is None:
            with self._database.read() as connection:
                query = select(api_keys.c.id).where(api_keys.c.revoked_at.is_(None)).limit(1)
                found = connection.execute(query).first() is not None
            self._needs = (time.monotonic(), found)
        return found

    def needs_key_known(self) -> bool | None:
        """As `needs_key`, from memory; None where the database must be asked."""
        if self._settings.needs_key:
            return True
        seen_s, found = self._needs
        return found if time.monotonic() - seen_s < FRESH_S else None

    def known(self, key: str) -> Caller | None:
        """Who a key belongs to, from memory; None where the database must be asked."""
        found = self._known.get(hash_key(key))
        return found[1] if found and time.monotonic() - found[0] < FRESH_S else None

    def caller(self, key: str) -> Caller | None:
        """Who a key belongs to; None for an unknown or revoked one."""
        sha256 = hash_key(key)
        found = self._known.get(sha256)
        if found and time.monotonic() - found[0] < FRESH_S:
            return found[1]
        caller = self._of_file(sha256) or self._of_database(sha256)
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[sha256] = (time.monotonic(), caller)
        return caller

    def _of_file(self, sha256: str) -> Caller | None:
        key = find_key(sha256, self._settings.file_keys)
        if key is None:
            return None
        peers = None if key.scope == "admin" else frozenset({each.id for each in self._settings.file_keys})
        return Caller(key.id, BOOTSTRAP, key.scope, peers)

    def _of_database(self, sha256: str) -> Caller | None:
        with self._database.read() as connection:
            row = connection.execute(select(api_keys).where(api_keys.c.sha256 == sha256)).first()
            if row is None or row.revoked_at is not None or not hmac.compare_digest(row.sha256, sha256):
                return None
            peers = connection.execute(select(api_keys.c.id).where(api_keys.c.name == row.name)).scalars()
            scope = _scope(row)
            caller = Caller(row.id, row.name, scope, None if scope == "admin" else frozenset(peers))
        self._note_use(row.id)
        return caller

    def _note_use(self, key_id: str) -> None:
        now_s = time.monotonic()
        if now_s - self._used.get(key_id, -USED_S) < USED_S:
            return
        self._used[key_id] = now_s
        with self._database.write() as connection:
            query = update(api_keys).where(api_keys.c.id == key_id)
            connection.execute(query.values(last_used_at=now_text()))


def create_key(database: Database, name: str, scope: Scope) -> tuple[str, str]:
    """A new key: its id, and the key, which is shown once and kept as its hash only."""
    key, key_id = new_key(), f"key_{uuid.uuid4().hex[:16]}"
    with database.write() as connection:
        values = {"id": key_id, "name": name, "sha256": hash_key(key), "scopes": json.dumps([scope])}
        connection.execute(api_keys.insert().values(**values, created_at=now_text()))
    return key_id, key


def list_keys(database: Database) -> list[KeyLine]:
    """Every key of the database, the oldest first."""
    with database.read() as connection:
        rows = connection.execute(select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)).all()
    return [
        KeyLine(row.id, row.name, _scope(row), row.created_at, row.revoked_at, row.last_used_at)
        for row in rows
    ]


def revoke_key(database: Database, key_id: str) -> bool:
    """End a key; False where there is none of this id. A key that was revoked before stays so."""
    with database.write() as connection:
        row = connection.execute(select(api_keys.c.revoked_at).where(api_keys.c.id == key_id)).first()
        if row is not None and row.revoked_at is None:
            query = update(api_keys).where(api_keys.c.id == key_id)
            connection.execute(query.values(revoked_at=now_text()))
    return row is not None


def _scope(row: "Row[tuple[object, ...]]") -> Scope:
    scopes: list[Scope] = json.loads(row.scopes)
    return scopes[0]
