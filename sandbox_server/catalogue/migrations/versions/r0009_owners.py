"""Whose key began a session, so that other keys do not see it."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; existing sessions have no owner, so only keys without a name see them."""
    op.add_column("sessions", sa.Column("owner", sa.Text(), server_default="", nullable=False))
    op.create_index("ix_sessions_owner", "sessions", ["owner"])


def downgrade() -> None:
    """Forget whose they are."""
    op.drop_index("ix_sessions_owner", "sessions")
    op.drop_column("sessions", "owner")
