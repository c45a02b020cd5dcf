"""Many sessions at once: counts by time, lists by run, by instance and by verdict."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Index them, and put beside each verdict what is counted of its body; that of older ones is not known."""
    op.add_column("verdicts", sa.Column("cause_kind", sa.String(60), nullable=False, server_default=""))
    op.add_column("verdicts", sa.Column("queue_s", sa.Double(), nullable=False, server_default="0"))
    op.add_column("verdicts", sa.Column("grade_s", sa.Double(), nullable=False, server_default="0"))
    op.add_column("verdicts", sa.Column("tripwires", sa.Text(), nullable=False, server_default="{}"))
    op.create_index("ix_verdicts_graded_at", "verdicts", ["graded_at", "name", "mask", "reward", "instance_id", "sid"])
    op.create_index("ix_verdicts_sid_name_mask", "verdicts", ["sid", "name", "mask"])
    op.create_index("ix_sessions_run_created_at", "sessions", ["run", "created_at"])
    op.create_index("ix_sessions_instance_id_created_at", "sessions", ["instance_id", "created_at"])
    op.create_index("ix_sessions_ended_at", "sessions", ["ended_at"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_sessions_ended_at", "sessions")
    op.drop_index("ix_sessions_instance_id_created_at", "sessions")
    op.drop_index("ix_sessions_run_created_at", "sessions")
    op.drop_index("ix_verdicts_sid_name_mask", "verdicts")
    op.drop_index("ix_verdicts_graded_at", "verdicts")
    for name in ("tripwires", "grade_s", "queue_s", "cause_kind"):
        op.drop_column("verdicts", name)
