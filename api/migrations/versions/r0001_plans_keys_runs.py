"""Plans with tags and events, idempotency keys, API keys, runs, executors."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    _plans()
    _events()
    _keys()
    _runs()
    _executors()


def _text(name: str, length: int = 64, *, null: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.String(length), nullable=null)


def _json(name: str, *, null: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.Text(), nullable=null)


def _int(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.Integer(), nullable=False)


def _plans() -> None:
    op.create_table(
        "plans",
        _text("id"),
        _text("state", 16),
        _int("attempt"),
        _int("revision"),
        _int("last_event"),
        _json("name", null=True),
        _json("tags"),
        _json("model", null=True),
        _json("cluster", null=True),
        _json("request"),
        _json("result", null=True),
        _json("problem", null=True),
        _json("progress"),
        _json("made_with"),
        _text("created_at", 32),
        _text("started_at", 32, null=True),
        _text("ended_at", 32, null=True),
        _text("key_id", null=True),
        _text("executor", null=True),
        _int("job_number"),
        _text("job_version", null=True),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("plans_by_state", "plans", ["state", "executor"])
    op.create_index("plans_by_time", "plans", ["created_at", "id"])
    op.create_table(
        "plan_tags",
        _text("plan_id"),
        _text("tag", 200),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("plan_id", "tag"),
    )
    op.create_index("plan_tags_by_tag", "plan_tags", ["tag"])


def _events() -> None:
    op.create_table(
        "events",
        _text("subject_id"),
        _int("number"),
        _text("kind", 16),
        _int("attempt"),
        _json("data"),
        _text("created_at", 32),
        sa.PrimaryKeyConstraint("subject_id", "number"),
    )


def _keys() -> None:
    op.create_table(
        "idempotency_keys",
        _text("owner"),
        _text("key", 255),
        _text("body_sha256"),
        _text("resource_id"),
        _text("created_at", 32),
        sa.PrimaryKeyConstraint("owner", "key"),
    )
    op.create_index("idempotency_keys_by_time", "idempotency_keys", ["created_at"])
    op.create_table(
        "api_keys",
        _text("id"),
        _json("name"),
        _text("sha256"),
        _json("scopes"),
        _text("created_at", 32),
        _text("revoked_at", 32, null=True),
        _text("last_used_at", 32, null=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("sha256", name="api_keys_sha256"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        _text("id"),
        _text("plan_id"),
        _text("state", 16),
        _int("attempt"),
        _int("revision"),
        _text("launcher", 32),
        _json("request"),
        _json("details"),
        _text("failure_code", null=True),
        _json("failure_detail", null=True),
        _text("created_at", 32),
        _text("started_at", 32, null=True),
        _text("ended_at", 32, null=True),
        _text("heartbeat_at", 32, null=True),
        _json("host", null=True),
        _text("key_id", null=True),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("runs_by_plan", "runs", ["plan_id"])
    op.create_index("runs_by_state", "runs", ["state"])
    op.create_index("runs_by_time", "runs", ["created_at", "id"])


def _executors() -> None:
    op.create_table(
        "executors",
        _text("id"),
        _text("job_version"),
        _json("host"),
        _int("pid"),
        _text("started_at", 32),
        sa.PrimaryKeyConstraint("id"),
    )
