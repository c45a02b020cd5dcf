"""Run by alembic with a connection that `Database.migrate` opened and locked."""

from alembic import context
from sqlalchemy import Connection

from sandbox_server.catalogue.tables import Base

connection: Connection = context.config.attributes["connection"]
# SQLite cannot alter a column in place: batch mode copies the table instead
context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
