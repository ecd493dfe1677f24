"""Bring a database to the newest schema, one process at a time; a newer schema than ours is refused."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from api.store.engine import POSTGRESQL
from cost_models.errors import BadInput

SCRIPTS: Final = Path(__file__).resolve().parents[1] / "migrations"
MIGRATION_LOCK: Final = 7_104_215_001
"""Key of PostgreSQL's advisory lock around migrations; any number that nobody else uses in this database."""


def migrate(engine: Engine) -> None:
    """Apply what is missing; raises BadInput where the database is from a newer release."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    scripts = ScriptDirectory.from_config(config)
    with _one_at_a_time(engine), engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current == scripts.get_current_head():
            return
        if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
            raise BadInput(
                f"the database is at schema {current[:40]}, newer than this release knows; run that release, "
                "or restore the backup made before it"
            )
        connection.rollback()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextmanager
def _one_at_a_time(engine: Engine) -> Iterator[None]:
    if engine.dialect.name == POSTGRESQL:
        outside = engine.execution_options(isolation_level="AUTOCOMMIT")
        with outside.connect() as connection, _advisory_lock(connection):
            yield
        return
    with Path(f"{engine.url.database}.migrate.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _advisory_lock(connection: Connection) -> Iterator[None]:
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
    try:
        yield
    finally:
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": MIGRATION_LOCK})
