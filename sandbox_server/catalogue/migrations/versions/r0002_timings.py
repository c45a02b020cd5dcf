"""Seconds by stage of each session."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is empty for existing sessions."""
    op.add_column("sessions", sa.Column("timings_s", sa.Text(), nullable=False, server_default="{}"))


def downgrade() -> None:
    """Forget them."""
    op.drop_column("sessions", "timings_s")
