"""What alembic runs: the migrations, on the connection that it was given, in one transaction."""

from alembic import context

connection = context.config.attributes["connection"]
# SQLite cannot alter most things in place: batch mode copies the table.
context.configure(connection=connection, render_as_batch=True, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
