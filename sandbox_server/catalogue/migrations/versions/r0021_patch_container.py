"""The container that a patch was taken from."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it; patches of before, and of servers of an older version, name none."""
    op.add_column("patches", sa.Column("container_id", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("patches", "container_id")
