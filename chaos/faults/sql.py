"""The SQL database is locked, or down for a while."""

import asyncio

from chaos.database import Postgres
from chaos.fault import Fault, FaultContext

_AWAY_S = 8.0


async def locked(context: FaultContext) -> str:
    """Another transaction (a backup, a migration) locks the tables."""
    async with context.fleet.sql.locked():
        before = len(context.trainer.answers)
        await asyncio.sleep(_AWAY_S)
        answered = len(context.trainer.answers) - before
    return f"{context.fleet.sql.kind}: held for {_AWAY_S:g} s, {answered} answers meanwhile"


async def gone(context: FaultContext) -> str:
    """A crash, and a restart."""
    sql = context.fleet.sql
    assert isinstance(sql, Postgres)  # a file cannot be down; the fault requires PostgreSQL
    await context.off(sql.stop)
    try:
        context.effect(not await sql.answers(), "the database still answers")
        await asyncio.sleep(_AWAY_S)
        context.effect(not await asyncio.to_thread(context.victim.ready), "the node calls itself ready without SQL")
    finally:
        await context.off(sql.start)
    return f"{sql.kind}: gone for {_AWAY_S:g} s"


FAULTS = (
    Fault(
        "sql_locked",
        "the SQL tables locked by another transaction for 8 s",
        "Starts, ends and rewards wait or are retried; actions continue",
        locked,
    ),
    Fault(
        "sql_gone", "the SQL database crashed, back after 8 s", "As while the tables are locked", gone, postgres=True
    ),
)
