"""Which instances an image belongs to."""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_CHUNK = 200


def upgrade() -> None:
    """Create the table and fill it from the instances that are there."""
    table = op.create_table(
        "instance_images",
        sa.Column("image", sa.Text(), nullable=False),
        sa.Column("instance_id", sa.String(400), nullable=False),
        sa.Column("setup_sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("image", "instance_id", name="pk_instance_images"),
    )
    connection = op.get_bind()
    instances = sa.table("instances", sa.column("instance_id", sa.String), sa.column("body", sa.Text))
    ids = list(connection.execute(sa.select(instances.c.instance_id)).scalars())
    for begin in range(0, len(ids), _CHUNK):
        chosen = instances.c.instance_id.in_(ids[begin : begin + _CHUNK])
        rows = connection.execute(sa.select(instances.c.instance_id, instances.c.body).where(chosen)).all()
        if images := [image for row in rows for image in _images(*row)]:
            connection.execute(table.insert(), images)


def _images(instance_id: str, body: str) -> list[dict[str, str]]:
    task = json.loads(body)
    sandbox, grader = task["sandbox"], task.get("grader") or {}
    if sandbox.get("source"):
        return []
    said = json.dumps([sandbox, grader.get("restore_tests", "")], sort_keys=True)
    digest = hashlib.sha256(said.encode()).hexdigest()
    names = dict.fromkeys(sandbox.get("images", ()))
    return [{"image": name, "instance_id": instance_id, "setup_sha256": digest} for name in names]


def downgrade() -> None:
    """Forget it."""
    op.drop_table("instance_images")
