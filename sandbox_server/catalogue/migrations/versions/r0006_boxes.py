"""Boxes: what a session is that runs an image in place of an instance."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There were none before."""
    op.create_table(
        "boxes",
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", name="pk_boxes"),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("boxes")
