"""What a server keeps: one database (SQLite or PostgreSQL), reached through small modules, one a kind of thing."""

from api.store.database import Database
from api.store.memory import PlanStore, StoredPlan

__all__ = ["Database", "PlanStore", "StoredPlan"]
