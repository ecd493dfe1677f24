"""An engine from one URL: SQLite (one machine) or PostgreSQL (several replicas)."""

from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from cost_models.errors import BadInput

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
WRITES: Final = "writes"
BUSY_S: Final = 30.0
"""How long a writer of SQLite waits for the others."""


def database_url(text: str) -> URL:
    """The URL of a database, with the driver that this project brings; raises BadInput for another kind."""
    try:
        url = make_url(text)
    except ArgumentError:
        raise BadInput(
            "the database is no URL; give sqlite:///FILE or postgresql://USER@HOST/NAME", pointer="database"
        ) from None
    kind = url.get_backend_name()
    if kind in ("postgres", POSTGRESQL):
        return url.set(drivername="postgresql+psycopg")
    if kind == SQLITE and url.database and url.database != ":memory:":
        return url.set(drivername=SQLITE)
    raise BadInput(
        f"database of kind {kind[:40]} is not supported; give sqlite:///FILE or postgresql://USER@HOST/NAME",
        pointer="database",
    )


def make_engine(url: URL, synchronous: str = "FULL") -> Engine:
    """An engine whose SQLite connections write ahead, check foreign keys and wait for each other.

    `synchronous` is SQLite's: FULL outlives a loss of power, NORMAL every end of a process, OFF neither surely.
    """
    if url.get_backend_name() == POSTGRESQL:
        return create_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=20, pool_timeout=10)
    Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url, connect_args={"timeout": BUSY_S, "isolation_level": None}, pool_size=10, max_overflow=20
    )
    event.listen(engine, "connect", partial(_prepare, synchronous))
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(synchronous: str, connection: Any, _record: Any) -> None:
    for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Any) -> None:
    """Take the write lock at once where a transaction will write: a lock taken midway can fail at once instead."""
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
