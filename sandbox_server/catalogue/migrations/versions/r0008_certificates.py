"""What is known of each instance's tests."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; certificates are made when they are first needed."""
    op.create_table(
        "certificates",
        sa.Column("instance_id", sa.String(400), nullable=False),
        sa.Column("row_sha256", sa.String(64), nullable=False),
        sa.Column("image_digest", sa.String(200), nullable=False),
        sa.Column("part", sa.String(40), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("instance_id", "row_sha256", "image_digest", "part", name="pk_certificates"),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("certificates")
