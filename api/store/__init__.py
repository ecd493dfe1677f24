"""What a server keeps: one database (SQLite or PostgreSQL), reached through small modules, one a kind of thing."""

from api.store.database import Database

__all__ = ["Database"]
