"""How often a box was changed, to tell an older copy of it from a newer one."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it; of boxes that live now Redis and SQL begin with the same number."""
    op.add_column("sessions", sa.Column("changes", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("sessions", "changes")
