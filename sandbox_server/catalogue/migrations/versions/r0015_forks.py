"""The session that a session was copied from, and what rollbacks undid."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; existing sessions are not copies, and none of their actions was undone."""
    op.add_column("sessions", sa.Column("parent", sa.String(40), server_default="", nullable=False))
    op.add_column("sessions", sa.Column("forked_at", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("sessions", sa.Column("undone", sa.Text(), server_default="", nullable=False))
    op.create_index("ix_sessions_parent", "sessions", ["parent"])


def downgrade() -> None:
    """Forget the copies' origins, and what was undone."""
    op.drop_index("ix_sessions_parent", "sessions")
    op.drop_column("sessions", "undone")
    op.drop_column("sessions", "forked_at")
    op.drop_column("sessions", "parent")
