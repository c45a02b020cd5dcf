"""The first tables: instances, and the history of sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "instances",
        sa.Column("instance_id", sa.String(400), nullable=False),
        sa.Column("instance_hash", sa.BigInteger(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("grader", sa.String(40), nullable=False),
        sa.Column("ungradable_because", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.String(64), nullable=False),
        sa.Column("imported_at", sa.Double(), nullable=False),
        sa.Column("verified_gold", sa.Text(), nullable=False),
        sa.Column("verified_empty", sa.Text(), nullable=False),
        sa.Column("verified_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("instance_id", name="pk_instances"),
        sa.UniqueConstraint("instance_hash", name="uq_instances_instance_hash"),
    )
    op.create_table(
        "sessions",
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("instance_id", sa.String(400), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("container_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("touched_at", sa.Double(), nullable=False),
        sa.Column("deadline", sa.Double(), nullable=False),
        sa.Column("shell_token", sa.Text(), nullable=False),
        sa.Column("cwd", sa.LargeBinary(), nullable=False),
        sa.Column("talk_turns", sa.BigInteger(), nullable=False),
        sa.Column("actions", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=False),
        sa.Column("cause", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sid", name="pk_sessions"),
    )
    op.create_index("ix_sessions_created_at", "sessions", ["created_at"])
    op.create_index("ix_sessions_state_node", "sessions", ["state", "node"])
    op.create_table(
        "actions",
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("observation", sa.LargeBinary(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("idempotency_key", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sid", "seq", name="pk_actions"),
    )
    op.create_index("ix_actions_sid_idempotency_key", "actions", ["sid", "idempotency_key"])
    op.create_table(
        "patches",
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("instance_id", sa.String(400), nullable=False),
        sa.Column("diff", sa.LargeBinary(), nullable=True),
        sa.Column("cause", sa.LargeBinary(), nullable=False),
        sa.Column("base_commit", sa.Text(), nullable=False),
        sa.Column("captured_at", sa.Double(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("sid", name="pk_patches"),
    )
    op.create_table(
        "verdicts",
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("instance_id", sa.String(400), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("mask", sa.Boolean(), nullable=False),
        sa.Column("grade_key", sa.Text(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=False),
        sa.Column("reward_name", sa.Text(), nullable=False),
        sa.Column("receipt", sa.Text(), nullable=False),
        sa.Column("graded_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sid", name="pk_verdicts"),
    )
    op.create_index("ix_verdicts_grade_key", "verdicts", ["grade_key"])
    op.create_table(
        "receipts",
        sa.Column("id", sa.String(100), nullable=False),
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_receipts"),
    )
    op.create_index("ix_receipts_sid", "receipts", ["sid"])


def downgrade() -> None:
    """Drop them."""
    for table in ("receipts", "verdicts", "patches", "actions", "sessions", "instances"):
        op.drop_table(table)
