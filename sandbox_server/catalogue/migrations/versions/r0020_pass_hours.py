"""Unmasked verdicts counted for each hour and instance, so that pass rates of a week need no verdict.

Triggers count, in the transaction that writes a verdict: those of servers of an older version are counted too.
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_SHOWN_S = 9 * 86_400.0
"""Pages compare a day, of up to 25 hours, with the seven days before it."""
_IS_RESOLVED = "CASE WHEN {row}.name = 'resolved' THEN 1 ELSE 0 END"
_ADD = (
    f"INSERT INTO pass_hours (hour, instance_id, resolved, graded)"
    f" VALUES ({{hour}}, NEW.instance_id, {_IS_RESOLVED.format(row='NEW')}, 1) ON CONFLICT (hour, instance_id)"
    " DO UPDATE SET resolved = pass_hours.resolved + excluded.resolved, graded = pass_hours.graded + 1;"
)
_SUBTRACT = (
    f"UPDATE pass_hours SET resolved = resolved - {_IS_RESOLVED.format(row='OLD')}, graded = graded - 1"
    " WHERE hour = {hour} AND instance_id = OLD.instance_id;"
)


def _hour(row: str) -> str:
    # PostgreSQL rounds in a cast, SQLite truncates
    by_casting = f"CAST({row}.graded_at / 3600 AS INTEGER)"
    return by_casting if _is_sqlite() else f"CAST(floor({row}.graded_at / 3600) AS BIGINT)"


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def upgrade() -> None:
    """Create the table and its triggers, then count what is there; a trigger makes writers wait for the commit."""
    op.create_table(
        "pass_hours",
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("instance_id", sa.String(400), nullable=False),
        sa.Column("resolved", sa.BigInteger(), nullable=False),
        sa.Column("graded", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hour", "instance_id", name="pk_pass_hours"),
    )
    add, subtract = _ADD.format(hour=_hour("NEW")), _SUBTRACT.format(hour=_hour("OLD"))
    if _is_sqlite():
        for event, row, action in (
            ("INSERT", "NEW", add),
            ("UPDATE", "OLD", subtract),
            ("UPDATE", "NEW", add),
            ("DELETE", "OLD", subtract),
        ):
            name = f"pass_hours_{event}_{row}".lower()
            op.execute(f"CREATE TRIGGER {name} AFTER {event} ON verdicts WHEN NOT {row}.mask BEGIN {action} END")
    else:
        op.execute(
            "CREATE FUNCTION count_pass_hours() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF TG_OP <> 'INSERT' AND NOT OLD.mask THEN {subtract} END IF;"
            f" IF TG_OP <> 'DELETE' AND NOT NEW.mask THEN {add} END IF;"
            " RETURN NULL; END $$"
        )
        op.execute(
            "CREATE TRIGGER pass_hours AFTER INSERT OR UPDATE OR DELETE ON verdicts"
            " FOR EACH ROW EXECUTE FUNCTION count_pass_hours()"
        )
    op.execute(
        sa.text(
            "INSERT INTO pass_hours (hour, instance_id, resolved, graded)"
            f" SELECT {_hour('v')}, v.instance_id, SUM({_IS_RESOLVED.format(row='v')}), COUNT(*)"
            " FROM verdicts v WHERE v.graded_at >= :since AND NOT v.mask GROUP BY 1, 2"
        ).bindparams(since=time.time() - _SHOWN_S)
    )


def downgrade() -> None:
    """Stop counting and drop the counts."""
    if _is_sqlite():
        for name in ("insert_new", "update_old", "update_new", "delete_old"):
            op.execute(f"DROP TRIGGER pass_hours_{name}")
    else:
        op.execute("DROP TRIGGER pass_hours ON verdicts")
        op.execute("DROP FUNCTION count_pass_hours()")
    op.drop_table("pass_hours")
