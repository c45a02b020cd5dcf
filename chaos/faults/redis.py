"""Redis is away, comes back with its data, or without."""

import asyncio
import signal
import time

from redis.exceptions import RedisError

from chaos.scene import Fault, Scene

_AWAY_S = 10.0


async def paused(scene: Scene) -> str:
    """It takes connections and answers nothing: the worst kind of away."""
    scene.fleet.redis.process.send(signal.SIGSTOP)
    try:
        scene.effect(not await asyncio.to_thread(scene.fleet.redis.answers), "Redis still answers")
        await asyncio.sleep(_AWAY_S)
        scene.effect(not await asyncio.to_thread(scene.victim.ready), "the node calls itself ready without Redis")
    finally:
        scene.fleet.redis.process.send(signal.SIGCONT)
    return f"no answer for {_AWAY_S:g} s"


async def killed(scene: Scene) -> str:
    """kill -9, ten seconds of refused connections, and its append-only file again."""
    await scene.off(lambda: scene.fleet.redis.stop(signal.SIGKILL))
    await _refused(scene)
    await asyncio.sleep(_AWAY_S)
    await scene.off(scene.fleet.redis.start)
    return f"refused for {_AWAY_S:g} s, back with {_keys(scene)} keys"


async def restarted(scene: Scene) -> str:
    """As an upgrade does it: SIGTERM, and at once again."""
    began = time.monotonic()
    await scene.off(scene.fleet.redis.stop)
    await _refused(scene)
    await scene.off(scene.fleet.redis.start)
    keys = _keys(scene)
    scene.effect(keys, "there was nothing to keep")
    return f"away for {time.monotonic() - began:.1f} s, back with {keys} keys"


async def emptied(scene: Scene) -> str:
    """A Redis without persistence dies, or somebody clears it: what is live is rebuilt from SQL and the containers."""
    before = _keys(scene)
    scene.effect(before, "there was nothing to lose")
    await scene.off(lambda: scene.fleet.redis.stop(signal.SIGKILL))
    await _refused(scene)
    await scene.off(scene.fleet.redis.forget)
    await scene.off(scene.fleet.redis.start)
    return f"{before} keys gone, {_keys(scene)} there a moment later"


async def _refused(scene: Scene) -> None:
    scene.effect(not await asyncio.to_thread(scene.fleet.redis.answers), "Redis still answers")


def _keys(scene: Scene) -> int:
    with scene.fleet.redis.client() as client:
        try:
            return int(client.dbsize())
        except RedisError:
            return 0


_FLUSH_S = 1.5
"""SANDBOX_JOURNAL_FLUSH_S and one write, on a busy machine."""

FAULTS = (
    Fault(
        "redis_paused",
        "Redis stopped for 10 s (SIGSTOP)",
        "Nothing can be acknowledged: calls are answered `state_unavailable` or wait; then all goes on",
        paused,
    ),
    Fault("redis_killed", "kill -9 of Redis, away for 10 s, then back with its data", "The same", killed),
    Fault("redis_restarted", "Redis restarted with its data", "The same, shorter", restarted),
    Fault(
        "redis_emptied",
        "Redis killed and restarted empty",
        "Live sessions are rebuilt from SQL and their containers",
        emptied,
        journal_gap_s=_FLUSH_S,
    ),
)
