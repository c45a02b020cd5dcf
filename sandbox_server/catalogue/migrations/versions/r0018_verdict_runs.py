"""A verdict's run and the begin of its session, beside the verdict: groups and runs are counted without sessions."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_SHOWN_S = 2 * 86_400.0
"""Pages count the last day and a window a day before it; of older verdicts the session is asked."""


def upgrade() -> None:
    """Add them, for the verdicts that pages count; servers of an older version write none."""
    op.add_column("verdicts", sa.Column("run", sa.Text(), nullable=True))
    op.add_column("verdicts", sa.Column("began_at", sa.Double(), nullable=True))
    op.execute(
        sa.text(
            "UPDATE verdicts SET run = (SELECT s.run FROM sessions s WHERE s.sid = verdicts.sid),"
            " began_at = (SELECT s.created_at FROM sessions s WHERE s.sid = verdicts.sid) WHERE graded_at >= :since"
        ).bindparams(since=time.time() - _SHOWN_S)
    )
    op.drop_index("ix_verdicts_graded_at", "verdicts")
    counted = ["graded_at", "name", "mask", "reward", "instance_id", "sid", "run", "began_at"]
    op.create_index("ix_verdicts_graded_at", "verdicts", counted)
    op.drop_index("ix_sessions_ended_at", "sessions")
    op.create_index("ix_sessions_ended_at", "sessions", ["ended_at", "end_reason", "instance_id", "run"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_sessions_ended_at", "sessions")
    op.create_index("ix_sessions_ended_at", "sessions", ["ended_at"])
    op.drop_index("ix_verdicts_graded_at", "verdicts")
    op.create_index("ix_verdicts_graded_at", "verdicts", ["graded_at", "name", "mask", "reward", "instance_id", "sid"])
    for name in ("began_at", "run"):
        op.drop_column("verdicts", name)
