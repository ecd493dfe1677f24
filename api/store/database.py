"""One database of a server: transactions that read, transactions that write, and whether it may be used yet."""

import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from api.errors import Problem
from api.store.engine import POSTGRESQL, WRITES, database_url, make_engine
from api.store.migrate import migrate

RETRY_AFTER_S: Final = 5
DATABASE_AWAY: Final = (OperationalError, PoolTimeout)
"""What the driver and the pool raise while a database cannot be reached, or is busy for too long."""
FILE_NAME: Final = "planner.sqlite"


class Database:
    """Plans, events, keys and runs. Used from threads; every transaction is one connection's.

    Without a URL the database is a SQLite file in `data_dir`; without either, in a folder that lives as long as
    this object. The schema is brought up to date by `prepare`, or by the first transaction.
    """

    def __init__(self, url: str | None, data_dir: Path | None) -> None:
        own = None if data_dir else Path(tempfile.mkdtemp(prefix="planner-server-"))
        self.data_dir = data_dir or own or Path()
        self.url = database_url(url or f"sqlite:///{self.data_dir.resolve() / FILE_NAME}")
        # A folder that goes with this object need not outlive a loss of power.
        self.is_kept = not (own and url is None)
        self.engine = make_engine(self.url, "FULL" if self.is_kept else "OFF")
        self._close = weakref.finalize(self, _leave, self.engine, own)
        self._writing = self.engine.execution_options(**{WRITES: True})
        self._lock = threading.Lock()
        self.is_ready = False

    @property
    def is_shared(self) -> bool:
        """Whether several machines can use it (PostgreSQL)."""
        return self.url.get_backend_name() == POSTGRESQL

    def prepare(self) -> None:
        """Migrate to the newest schema; raises BadInput or what the driver raises."""
        with self._lock:
            if not self.is_ready:
                migrate(self.engine)
                self.is_ready = True

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads; raises Problem 503 while another thread migrates."""
        self._await_ready()
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes, committed at its end; raises Problem 503 while another thread migrates."""
        self._await_ready()
        with self._writing.begin() as connection:
            yield connection

    def close(self) -> None:
        """Close every connection; a folder of its own goes with it."""
        self._close()

    def _await_ready(self) -> None:
        if self.is_ready:
            return
        if self._lock.locked():
            raise _not_ready("the database is being migrated")
        self.prepare()


def no_database() -> Problem:
    """What a request is answered that met one of DATABASE_AWAY."""
    return _not_ready("the database cannot be reached or is busy")


def _not_ready(reason: str) -> Problem:
    detail = f"{reason}; ask again in {RETRY_AFTER_S} s"
    return Problem(503, "not_ready", detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def _leave(engine: Engine, folder: Path | None) -> None:
    engine.dispose()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
