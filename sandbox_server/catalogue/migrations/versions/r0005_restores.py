"""Counts of sessions that another node restored."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; existing sessions count as never restored."""
    op.add_column("sessions", sa.Column("restores", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("sessions", sa.Column("notice", sa.Text(), nullable=False, server_default=""))
    op.add_column("sessions", sa.Column("differences", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("sessions", "differences")
    op.drop_column("sessions", "notice")
    op.drop_column("sessions", "restores")
