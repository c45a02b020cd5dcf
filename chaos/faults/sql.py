"""The SQL database is locked, or gone for a while."""

import asyncio

from chaos.database import Postgres
from chaos.scene import Fault, Scene

_AWAY_S = 8.0


async def locked(scene: Scene) -> str:
    """A transaction of somebody else (a backup, a migration) holds the tables."""
    async with scene.fleet.sql.locked():
        before = len(scene.trainer.answers)
        await asyncio.sleep(_AWAY_S)
        answered = len(scene.trainer.answers) - before
    return f"{scene.fleet.sql.kind}: held for {_AWAY_S:g} s, {answered} answers meanwhile"


async def gone(scene: Scene) -> str:
    """A crash, and its return."""
    sql = scene.fleet.sql
    assert isinstance(sql, Postgres)  # a file cannot be gone; the fault asks for PostgreSQL
    await scene.off(sql.stop)
    try:
        scene.effect(not await sql.answers(), "the database still answers")
        await asyncio.sleep(_AWAY_S)
        scene.effect(not await asyncio.to_thread(scene.victim.ready), "the node calls itself ready without SQL")
    finally:
        await scene.off(sql.start)
    return f"{sql.kind}: gone for {_AWAY_S:g} s"


FAULTS = (
    Fault(
        "sql_locked",
        "the SQL tables locked by another transaction for 8 s",
        "Starts, ends and rewards wait or are asked again; actions go on",
        locked,
    ),
    Fault("sql_gone", "the SQL database crashed, back after 8 s", "The same", gone, postgres=True),
)
