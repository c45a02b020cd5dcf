"""Templates: images that clients build."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "templates",
        sa.Column("template_id", sa.String(40), nullable=False),
        sa.Column("owner", sa.String(100), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("template_id", name="pk_templates"),
        sa.UniqueConstraint("owner", "name", name="uq_templates_owner"),
    )
    op.create_table(
        "template_builds",
        sa.Column("build_id", sa.String(40), nullable=False),
        sa.Column("template_id", sa.String(40), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("build_id", name="pk_template_builds"),
    )
    op.create_index("ix_template_builds_template_id", "template_builds", ["template_id"])
    op.create_table(
        "template_tags",
        sa.Column("template_id", sa.String(40), nullable=False),
        sa.Column("tag", sa.String(200), nullable=False),
        sa.Column("build_id", sa.String(40), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("template_id", "tag", name="pk_template_tags"),
    )
    op.create_table(
        "template_files",
        sa.Column("template_id", sa.String(40), nullable=False),
        sa.Column("files_hash", sa.String(100), nullable=False),
        sa.Column("upload_sha256", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.Column("body_sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("template_id", "files_hash", name="pk_template_files"),
        sa.UniqueConstraint("upload_sha256", name="uq_template_files_upload_sha256"),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("template_files")
    op.drop_table("template_tags")
    op.drop_index("ix_template_builds_template_id", "template_builds")
    op.drop_table("template_builds")
    op.drop_table("templates")
