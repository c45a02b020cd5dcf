"""File systems without a free byte."""

import asyncio
from pathlib import Path

from redis.exceptions import RedisError

from chaos.fault import Fault, FaultContext
from chaos.mounts import Filler

_FULL_S = 8.0


async def redis_full(context: FaultContext) -> str:
    """The append-only file cannot grow, so Redis refuses all writes."""
    folder = context.fleet.redis.folder
    filler = Filler(folder)
    try:
        taken = await asyncio.to_thread(filler.fill)
        await context.until(lambda: not _writes(context), 20, "Redis refuses writes")
        await asyncio.sleep(_FULL_S)
    finally:
        filler.empty()
    await context.until(lambda: _writes(context), 20, "Redis accepts writes again")
    return f"{taken >> 20} MB taken, writes refused for more than {_FULL_S:g} s"


async def engine_full(context: FaultContext) -> str:
    """No container on that engine can write, and none can be created."""
    folder = context.fleet.engine.data
    filler = Filler(folder)
    try:
        taken = await asyncio.to_thread(filler.fill)
        context.effect(not _room(folder), "there still was room")
        await asyncio.sleep(_FULL_S)
    finally:
        filler.empty()
    return f"{taken >> 20} MB taken, full for {_FULL_S:g} s"


def _writes(context: FaultContext) -> bool:
    """Whether Redis accepts a write."""
    try:
        with context.fleet.redis.client() as client:
            return bool(client.set("chaos:probe", "x" * 100_000, px=1))
    except RedisError:
        return False


def _room(folder: Path) -> bool:
    try:
        probe = folder / "probe"
        probe.write_bytes(b"x" * 65536)
        probe.unlink()
    except OSError:
        return False
    return True


FAULTS = (
    Fault("redis_disk_full", "the disk of Redis is full for 8 s", "As if Redis were down", redis_full),
    Fault(
        "engine_disk_full",
        "the disk of a node's engine is full for 8 s",
        "Commands in its sandboxes see a full disk; the node refuses starts",
        engine_full,
    ),
)
