"""File systems without a free byte."""

import asyncio
from pathlib import Path

from redis.exceptions import RedisError

from chaos.mounts import Filler
from chaos.scene import Fault, Scene

_FULL_S = 8.0


async def redis_full(scene: Scene) -> str:
    """The append-only file cannot grow, so Redis refuses every write until it can."""
    folder = scene.fleet.redis.folder
    filler = Filler(folder)
    try:
        taken = await asyncio.to_thread(filler.fill)
        await scene.until(lambda: not _writes(scene), 20, "Redis refuses writes")
        await asyncio.sleep(_FULL_S)
    finally:
        filler.empty()
    await scene.until(lambda: _writes(scene), 20, "Redis takes writes again")
    return f"{taken >> 20} MB taken, writes refused for more than {_FULL_S:g} s"


async def engine_full(scene: Scene) -> str:
    """No container of that engine can write, and none can be made."""
    folder = scene.fleet.engine.data
    filler = Filler(folder)
    try:
        taken = await asyncio.to_thread(filler.fill)
        scene.effect(not _room(folder), "there still was room")
        await asyncio.sleep(_FULL_S)
    finally:
        filler.empty()
    return f"{taken >> 20} MB taken, full for {_FULL_S:g} s"


def _writes(scene: Scene) -> bool:
    """Whether Redis takes one."""
    try:
        with scene.fleet.redis.client() as client:
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
    Fault("redis_disk_full", "the disk of Redis full for 8 s", "As a Redis that is away", redis_full),
    Fault(
        "engine_disk_full",
        "the disk of a node's engine full for 8 s",
        "The sandbox's commands see a full disk; starts are refused there",
        engine_full,
    ),
)
