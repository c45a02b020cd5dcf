"""Verdicts are looked up by instance: how long its gradings take decides which waiting one goes first."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index them."""
    op.create_index("ix_verdicts_instance_id_graded_at", "verdicts", ["instance_id", "graded_at"])


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("ix_verdicts_instance_id_graded_at", "verdicts")
