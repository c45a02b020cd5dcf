"""The cost of one rollout and one idle node for Redis, SQL and the network, read from their own counters."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from redis.asyncio import Redis

from bench.rollouts import Rollout, rollouts
from bench.samples import samples
from bench.subject import Bench, Served, prepare, served
from sandbox_server.state.embedded import EmbeddedRedis

_ROLLOUTS = 24
_INSTANCES = 6
_TOGETHER = 4
_IDLE_S = 20.0
_HELD = 16
"""Sessions live at a time while their memory is measured."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost of one rollout of ten actions with its reward, and of an idle node."""

    redis_commands: float
    """Including commands inside scripts; the idle node's share is subtracted."""
    redis_cpu_ms: float
    redis_in_kb: float
    redis_out_kb: float
    session_kb: float
    """Redis's memory for a live session after its ten actions."""
    sql_kb: float
    """The database's growth."""
    client_kb: float
    """Bodies of requests and responses between trainer and server."""
    idle_commands_s: float
    idle_cpu_ms_s: float
    n: int


async def measure(bench: Bench) -> Costs:
    """Run the rollouts on one server and read the counters before and after."""
    rows = [one.numbered(number) for number in range(_INSTANCES) for one in samples()]
    await prepare(bench)
    async with served(bench, rows) as server:
        redis = Redis(unix_socket_path=str(EmbeddedRedis(server.data_dir).socket))
        try:
            return await _measure(server, redis)
        finally:
            await redis.aclose()


async def _measure(server: Served, redis: "Redis") -> Costs:
    todo = rollouts(samples(), _INSTANCES, _ROLLOUTS // _INSTANCES)
    await _run(server, todo[:2])  # one-time costs do not belong to a rollout
    idle = [await _read(redis)]
    await asyncio.sleep(_IDLE_S)
    idle.append(await _read(redis))
    before, sql = await _read(redis), _sql_bytes(server)
    moved = await _run(server, todo)
    await asyncio.sleep(2.0)  # until the journal is in SQL
    after = await _read(redis)
    n = len(todo)
    alone = {name: (idle[1][name] - idle[0][name]) / (idle[1]["at"] - idle[0]["at"]) for name in after}
    spent = {name: (after[name] - before[name] - alone[name] * (after["at"] - before["at"])) / n for name in after}
    return Costs(
        redis_commands=spent["commands"],
        redis_cpu_ms=1000 * spent["cpu_s"],
        redis_in_kb=spent["in"] / 1024,
        redis_out_kb=spent["out"] / 1024,
        session_kb=await _session_kb(server, redis),
        sql_kb=(_sql_bytes(server) - sql) / n / 1024,
        client_kb=median(moved) / 1024,
        idle_commands_s=alone["commands"],
        idle_cpu_ms_s=1000 * alone["cpu_s"],
        n=n,
    )


async def _run(server: Served, todo: Sequence[Rollout]) -> list[int]:
    """Run each rollout completely; bytes of its requests and observations."""
    gate = asyncio.Semaphore(_TOGETHER)

    async def one(rollout: Rollout) -> int:
        async with gate:
            sid = await server.client.start(rollout.instance_id)
            moved = 0
            for step in rollout.steps():
                moved += len(step.content) + len(await server.client.act(sid, step.content))
            await server.client.end(sid)
            await server.client.reward(sid)
            return moved

    return await asyncio.gather(*(one(rollout) for rollout in todo))


async def _session_kb(server: Served, redis: "Redis") -> float:
    """Size of a live session's keys after ten actions; half of the undo data included."""
    todo = rollouts(samples()[:1], 1, _HELD)
    sids = await asyncio.gather(*(server.client.start(rollout.instance_id) for rollout in todo))
    sizes = []
    for sid, rollout in zip(sids, todo, strict=True):
        for step in rollout.steps():
            await server.client.act(sid, step.content)
        keys = [key async for key in redis.scan_iter(match=f"*:{sid}")]
        sizes.append(sum([await redis.memory_usage(key, samples=0) or 0 for key in keys]))
    for sid in sids:
        await server.client.end(sid)
    return median(sizes) / 1024


async def _read(redis: "Redis") -> dict[str, float]:
    stats: dict[str, Any] = {**await redis.info("stats"), **await redis.info("cpu")}
    return {
        "at": time.monotonic(),
        "commands": stats["total_commands_processed"],
        "in": stats["total_net_input_bytes"],
        "out": stats["total_net_output_bytes"],
        "cpu_s": stats["used_cpu_sys"] + stats["used_cpu_user"],
    }


def _sql_bytes(server: Served) -> int:
    return sum(path.stat().st_size for path in server.data_dir.glob("catalogue.sqlite3*"))
