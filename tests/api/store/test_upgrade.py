"""From one schema to the next: what is there is kept, servers of the release before see that they are older."""

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from api.store import Database, migrate
from cost_models.errors import BadInput
from tests.api.jobs.postgres import private_cluster

NEXT = '''
"""A release that comes after."""
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "0002", "{before}", None, None
def upgrade():
    with op.batch_alter_table("plans") as table:
        table.add_column(sa.Column("note", sa.Text(), nullable=False, server_default="none"))
'''


@pytest.fixture
def next_release(tmp_path: Path) -> Path:
    """The migrations of this release and one more."""
    scripts = tmp_path / "migrations"
    shutil.copytree(migrate.SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "r0002_next.py").write_text(NEXT.format(before=head()), encoding="utf-8")
    return scripts


def head() -> str:
    """The newest revision of this release."""
    versions = sorted((migrate.SCRIPTS / "versions").glob("r*.py"))
    (line,) = [line for line in versions[-1].read_text().splitlines() if line.startswith("revision")]
    return line.split("=")[1].strip().strip('"')


def upgraded(url: str | None, folder: Path, scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan asked of this release is there after the next one's migration, and this one refuses from then on."""
    settings = Settings(database=url, data_dir=folder, num_searches=1)
    question = {
        "model": {"kind": "catalog", "name": "llama-3.2-1b"},
        "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8},
        "job": {"seq_len": 2048, "global_batch": 32},
        "name": "kept",
    }
    app = create_app(settings)
    with TestClient(app, base_url="http://localhost") as client:
        headers = {"Prefer": "wait=0", "Idempotency-Key": "once"}
        plan = client.post("/v1/plans", json={**question, "tags": ["a"]}, headers=headers).json()
        client.post(f"/v1/plans/{plan['id']}/cancel")
    with monkeypatch.context() as newer:
        newer.setattr(migrate, "SCRIPTS", scripts)
        database = Database(url, folder)
        with database.read() as connection:
            row = connection.execute(sa.text("SELECT name, state, note FROM plans")).one()
            assert tuple(row) == ("kept", "cancelled", "none")
            # What points at a plan is still there although its table was made anew (SQLite).
            for table in ("events", "plan_tags", "idempotency_keys"):
                assert connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one() > 0, table
        database.close()
    with pytest.raises(BadInput, match="newer than this release"):
        Database(url, folder).prepare()


def test_sqlite(tmp_path: Path, next_release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upgraded(None, tmp_path / "data", next_release, monkeypatch)


@pytest.mark.system
def test_postgresql(tmp_path: Path, next_release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with private_cluster() as cluster:
        upgraded(cluster.url, tmp_path / "data", next_release, monkeypatch)
