"""Whose start a session was."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; existing sessions belong to the run without a name."""
    op.add_column("sessions", sa.Column("run", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("sessions", "run")
