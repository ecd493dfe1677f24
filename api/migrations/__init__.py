"""The schema's history (alembic); applied by the server when it starts, under a lock (api/store/migrate.py)."""
