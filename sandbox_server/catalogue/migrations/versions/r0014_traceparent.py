"""The trace of a client that a rollout belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; existing sessions belong to no client's trace."""
    op.add_column("sessions", sa.Column("traceparent", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    """Forget the traces."""
    op.drop_column("sessions", "traceparent")
