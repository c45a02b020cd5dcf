"""Redis fails, and returns with its data or without."""

import asyncio
import signal
import time

from redis.exceptions import RedisError

from chaos.fault import Fault, FaultContext

_AWAY_S = 10.0


async def paused(context: FaultContext) -> str:
    """It accepts connections but answers nothing: the worst kind of failure."""
    context.fleet.redis.process.send(signal.SIGSTOP)
    try:
        context.effect(not await asyncio.to_thread(context.fleet.redis.answers), "Redis still answers")
        await asyncio.sleep(_AWAY_S)
        context.effect(not await asyncio.to_thread(context.victim.ready), "the node calls itself ready without Redis")
    finally:
        context.fleet.redis.process.send(signal.SIGCONT)
    return f"no answer for {_AWAY_S:g} s"


async def killed(context: FaultContext) -> str:
    """kill -9, ten seconds of refused connections, then a restart with its append-only file."""
    await context.off(lambda: context.fleet.redis.stop(signal.SIGKILL))
    await _refused(context)
    await asyncio.sleep(_AWAY_S)
    await context.off(context.fleet.redis.start)
    return f"refused for {_AWAY_S:g} s, back with {_keys(context)} keys"


async def restarted(context: FaultContext) -> str:
    """Like an upgrade: SIGTERM, and an immediate restart."""
    began = time.monotonic()
    await context.off(context.fleet.redis.stop)
    await _refused(context)
    await context.off(context.fleet.redis.start)
    keys = _keys(context)
    context.effect(keys, "there was nothing to keep")
    return f"down for {time.monotonic() - began:.1f} s, back with {keys} keys"


async def emptied(context: FaultContext) -> str:
    """A Redis without persistence dies, or somebody clears it: live state is rebuilt from SQL and the containers."""
    before = _keys(context)
    context.effect(before, "there was nothing to lose")
    await context.off(lambda: context.fleet.redis.stop(signal.SIGKILL))
    await _refused(context)
    await context.off(context.fleet.redis.forget)
    await context.off(context.fleet.redis.start)
    return f"{before} keys gone, {_keys(context)} there a moment later"


async def _refused(context: FaultContext) -> None:
    context.effect(not await asyncio.to_thread(context.fleet.redis.answers), "Redis still answers")


def _keys(context: FaultContext) -> int:
    with context.fleet.redis.client() as client:
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
        "Nothing can be acknowledged: calls get `state_unavailable` or wait; then everything continues",
        paused,
    ),
    Fault(
        "redis_killed", "kill -9 of Redis, down for 10 s, then back with its data", "As while Redis is paused", killed
    ),
    Fault("redis_restarted", "Redis restarted with its data", "As while Redis is paused, but shorter", restarted),
    Fault(
        "redis_emptied",
        "Redis killed and restarted empty",
        "Live sessions are rebuilt from SQL and their containers",
        emptied,
        journal_gap_s=_FLUSH_S,
    ),
)
