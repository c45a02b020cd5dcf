"""Metrics of rollouts, and what trainers say of them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; existing sessions have no metrics."""
    op.create_table(
        "rollouts",
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("rewards", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", name="pk_rollouts"),
    )
    op.create_table(
        "rollout_metrics",
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "name", name="pk_rollout_metrics"),
    )
    op.create_index("ix_rollout_metrics_at", "rollout_metrics", ["at"])
    op.create_index("ix_rollout_metrics_run_at", "rollout_metrics", ["run", "at"])


def downgrade() -> None:
    """Forget them."""
    op.drop_table("rollout_metrics")
    op.drop_table("rollouts")
