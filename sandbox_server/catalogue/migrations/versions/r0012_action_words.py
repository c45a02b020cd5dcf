"""The words of actions, for search."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index, empty: actions that are there already are not found."""
    op.create_table(
        "action_index",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("sid", sa.String(40), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("sid", "seq", name="uq_action_index_sid"),
    )
    if op.get_bind().dialect.name == "sqlite":
        # `detail=none`: no positions; one word is one token, so no phrase is ever asked for
        op.execute(
            "CREATE VIRTUAL TABLE action_words USING fts5"
            " (words, content='', detail=none, columnsize=0, tokenize=\"ascii tokenchars '_'\")"
        )
        return
    op.execute("ALTER TABLE action_index ADD COLUMN words tsvector NOT NULL")
    op.execute("CREATE INDEX ix_action_index_words ON action_index USING gin (words)")


def downgrade() -> None:
    """Drop it."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE action_words")
    op.drop_table("action_index")
