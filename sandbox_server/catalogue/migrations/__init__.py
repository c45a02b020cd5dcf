"""The schema's history for alembic; `Database.migrate` runs it, nobody calls alembic by hand."""
