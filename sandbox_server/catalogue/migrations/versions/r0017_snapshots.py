"""Snapshots of boxes."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "snapshots",
        sa.Column("snapshot_id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(300), nullable=False),
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("snapshot_id", name="pk_snapshots"),
    )
    op.create_index("ix_snapshots_owner", "snapshots", ["owner"])


def downgrade() -> None:
    """Forget them."""
    op.drop_index("ix_snapshots_owner", "snapshots")
    op.drop_table("snapshots")
