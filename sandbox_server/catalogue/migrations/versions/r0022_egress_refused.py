"""What egress rules have refused to a session."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it; nobody has counted for sessions of before, and of servers of an older version."""
    op.add_column("sessions", sa.Column("egress_refused", sa.BigInteger(), nullable=False, server_default="-1"))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("sessions", "egress_refused")
