"""The format that a trainer asks a session's answer in."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; existing sessions use the instance's format."""
    op.add_column("rollouts", sa.Column("format", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    """Forget the formats."""
    op.drop_column("rollouts", "format")
