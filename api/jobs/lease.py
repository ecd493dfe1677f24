"""Leases: a lock held as long as a process lives. Who can take another's lock knows that it is dead.

No clock is compared and nothing expires: the operating system frees a file's lock with its process, and PostgreSQL
frees an advisory lock with its session.
"""

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import Connection, text

from api.store import Database

FOLDER: Final = "leases"
# A host that vanished without a word is noticed by the database after about 5 + 3 x 2 s.
_KEEPALIVES: Final = ("tcp_keepalives_idle = 5", "tcp_keepalives_interval = 2", "tcp_keepalives_count = 3")


def lease_of(database: Database, executor_id: str) -> "FileLease | AdvisoryLease":
    """The kind of lease that fits the database."""
    return AdvisoryLease(database, executor_id) if database.is_shared else FileLease(database, executor_id)


class FileLease:
    """A locked file beside the SQLite database; all servers of it are on this machine."""

    def __init__(self, database: Database, executor_id: str) -> None:
        self._database = database
        self._folder = Path(str(database.url.database)).parent / FOLDER
        self._path = self._folder / executor_id
        self._file: IO[bytes] | None = None

    def hold(self) -> None:
        """Take the lock; raises RuntimeError where another process has it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = _locked(self._path)
        if self._file is None:
            raise RuntimeError(f"the lease {self._path.name} is held by another process")

    def is_held(self) -> bool:
        """Whether the file is still there and locked."""
        return self._file is not None and self._path.exists()

    def release(self) -> None:
        """Give it back."""
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    @contextmanager
    def if_dead(self, executor_id: str) -> Iterator[Connection | None]:
        """A writing transaction during which a dead executor cannot be taken over by others; None if it lives."""
        path = self._folder / executor_id
        self._folder.mkdir(parents=True, exist_ok=True)
        file = _locked(path)
        if file is None:
            yield None
            return
        try:
            with self._database.write() as connection:
                yield connection
        finally:
            path.unlink(missing_ok=True)
            file.close()


def _locked(path: Path) -> IO[bytes] | None:
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


class AdvisoryLease:
    """An advisory lock of PostgreSQL in a session of its own (so: no pooler that shares sessions between)."""

    def __init__(self, database: Database, executor_id: str) -> None:
        self._database = database
        self._key = _key(executor_id)
        self._session: Any = None

    def hold(self) -> None:
        """Take the lock; raises RuntimeError where another process has it."""
        pooled = self._database.engine.raw_connection()
        session: Any = pooled.dbapi_connection
        pooled.detach()  # never back into the pool
        session.rollback()
        session.autocommit = True
        for setting in _KEEPALIVES:
            session.execute(f"SET {setting}")
        self._session = session
        if not session.execute("SELECT pg_try_advisory_lock(%s)", (self._key,)).fetchone()[0]:
            self.release()
            raise RuntimeError("the lease is held by another process")

    def is_held(self) -> bool:
        """Whether the session lives; the lock lives with it."""
        if self._session is None:
            return False
        try:
            self._session.execute("SELECT 1")
        except self._database.engine.dialect.loaded_dbapi.Error:
            return False
        return True

    def release(self) -> None:
        """Give it back."""
        if self._session is not None:
            self._session.close()
            self._session = None

    @contextmanager
    def if_dead(self, executor_id: str) -> Iterator[Connection | None]:
        """A writing transaction during which a dead executor cannot be taken over by others; None if it lives."""
        with self._database.write() as connection:
            taken = connection.scalar(
                text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _key(executor_id)}
            )
            yield connection if taken else None


def _key(executor_id: str) -> int:
    """A 64-bit number for an executor."""
    return int.from_bytes(hashlib.sha256(executor_id.encode("ascii")).digest()[:8], "big", signed=True)
