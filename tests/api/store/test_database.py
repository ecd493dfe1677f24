"""One database from one URL: migrated once, to exactly the tables that the code names; kinds that are refused."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from api.store import Database
from api.store.engine import database_url
from api.store.tables import metadata, runs
from cost_models.errors import BadInput


def test_the_migrations_make_the_tables_that_the_code_names(tmp_path: Path) -> None:
    database = Database(None, tmp_path)
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()


def test_what_was_written_is_there_for_the_next_server(tmp_path: Path) -> None:
    first = Database(None, tmp_path)
    with first.write() as connection:
        connection.execute(sa.text("INSERT INTO executors VALUES ('a', '1', 'host', 7, '2026')"))
    first.close()
    second = Database(f"sqlite:///{tmp_path}/planner.sqlite", None)
    with second.read() as connection:
        assert connection.execute(sa.text("SELECT pid FROM executors")).scalar_one() == 7
    second.close()


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    database = Database(None, tmp_path)
    with pytest.raises(sa.exc.IntegrityError), database.write() as connection:
        connection.execute(sa.text("INSERT INTO executors VALUES ('a', '1', 'host', 7, '2026')"))
        # A run of no plan: foreign keys are checked.
        row = {"id": "r", "plan_id": "none", "state": "queued", "attempt": 1, "revision": 1}
        texts = {"launcher": "local", "request": "{}", "details": "{}", "created_at": "2026"}
        connection.execute(runs.insert().values(**row, **texts))
    with database.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM executors")).scalar_one() == 0
    database.close()


def test_a_database_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    database = Database(None, tmp_path)
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(BadInput, match="newer than this release"):
        Database(None, tmp_path).prepare()


@pytest.mark.parametrize("text", ["planner", "mysql://host/x", "sqlite://", "sqlite:///:memory:", ""])
def test_other_databases_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        database_url(text)


def test_postgresql_is_reached_by_the_driver_that_comes_along() -> None:
    assert database_url("postgresql://u:p@host/name").drivername == "postgresql+psycopg"
    assert database_url("postgres://host/name").drivername == "postgresql+psycopg"
