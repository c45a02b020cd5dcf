"""Tokens of sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "session_tokens",
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("sid", name="pk_session_tokens"),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("session_tokens")
