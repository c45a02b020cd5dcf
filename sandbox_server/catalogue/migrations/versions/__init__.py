"""One file a step; alembic orders them by `down_revision`."""
