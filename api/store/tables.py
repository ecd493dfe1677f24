"""The tables of the service. The plans are the truth about every plan; the queue beside them only says who is next.

JSON stands in text columns, written by this program, so that what is answered is what was stored, byte for byte, on
SQLite and PostgreSQL alike. Times are UTC in ISO 8601 with milliseconds, whose order is the order of their text.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata: Final = MetaData()

plans: Final = Table(
    "plans",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("revision", Integer, nullable=False),  # rises with every change; the entity tag
    Column("last_event", Integer, nullable=False),  # number of the newest event
    Column("name", Text),
    Column("tags", Text, nullable=False),  # JSON array
    Column("model", Text),  # what filters compare: the name of the catalog, of the spec, of the config
    Column("cluster", Text),
    Column("request", Text, nullable=False),  # JSON, model and cluster spelt out
    Column("result", Text),
    Column("problem", Text),
    Column("progress", Text, nullable=False),
    Column("made_with", Text, nullable=False),
    Column("created_at", String(32), nullable=False),
    Column("started_at", String(32)),
    Column("ended_at", String(32)),
    Column("key_id", String(64)),  # who asked
    Column("executor", String(64)),  # the process that runs it
    Column("job_number", Integer, nullable=False),  # entries of the queue so far
    Column("job_version", String(64)),  # job version of its entry; null until it is in the queue
    Column("num_bytes", BigInteger, nullable=False),
    Index("plans_by_time", "created_at", "id"),
    Index("plans_by_state", "state", "executor"),
)

plan_tags: Final = Table(
    "plan_tags",
    metadata,
    Column("plan_id", String(64), ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", String(200), primary_key=True),
    Index("plan_tags_by_tag", "tag"),
)

events: Final = Table(
    "events",
    metadata,
    Column("subject_id", String(64), primary_key=True),  # a plan
    Column("number", Integer, primary_key=True),  # rising from 1 within the subject
    Column("kind", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("data", Text, nullable=False),
    Column("created_at", String(32), nullable=False),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("owner", String(64), primary_key=True),  # id of the API key; empty without keys
    Column("key", String(255), primary_key=True),
    Column("body_sha256", String(64), nullable=False),
    Column("resource_id", String(64), nullable=False),
    Column("created_at", String(32), nullable=False),
    Index("idempotency_keys_by_time", "created_at"),
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("scopes", Text, nullable=False),  # JSON array
    Column("created_at", String(32), nullable=False),
    Column("revoked_at", String(32)),
    Column("last_used_at", String(32)),
    UniqueConstraint("sha256", name="api_keys_sha256"),
)

runs: Final = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("plan_id", String(64), ForeignKey("plans.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("launcher", String(32), nullable=False),
    Column("request", Text, nullable=False),  # JSON
    Column("details", Text, nullable=False),  # JSON: place, name at the launcher, process
    Column("failure_code", String(64)),
    Column("failure_detail", Text),
    Column("created_at", String(32), nullable=False),
    Column("started_at", String(32)),
    Column("ended_at", String(32)),
    Column("heartbeat_at", String(32)),
    Column("host", Text),
    Column("key_id", String(64)),
    Index("runs_by_time", "created_at", "id"),
    Index("runs_by_plan", "plan_id"),
    Index("runs_by_state", "state"),
)

executors: Final = Table(
    "executors",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("job_version", String(64), nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", String(32), nullable=False),
)
