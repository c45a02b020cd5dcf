"""Cancels takes from the pool at chosen moments: no container is given out twice or lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandbox_server.app.engine import open_runtime
from sandbox_server.app.workspaces import open_workspaces
from sandbox_server.catalogue.importing import read_instances
from sandbox_server.pool.pool import Pool, PoolConfig
from sandbox_server.sandbox.base import ContainerSpec
from sandbox_server.settings import Settings
from sandbox_server.tasks import Loops
from tests.conftest import ROOT


@asynccontextmanager
async def pool_of(settings: Settings, **changes: Any) -> AsyncIterator[tuple[Pool, ContainerSpec]]:
    """A pool that parks containers, and the specification of a sample's session."""
    bounds = {"size": 4, "idle_s": 60.0, "min_free_mb": 0, "together": 2, "lasts_s": 60.0} | changes
    ledger = next(row for row in read_instances(ROOT / "examples" / "instances.jsonl") if "ledger" in row.instance_id)
    async with open_runtime(settings) as runtime, open_workspaces(settings, runtime) as workspaces:
        pool = Pool(runtime, PoolConfig(**bounds), room=lambda: 100)
        async with Loops().every(0, pool.park, name="pool"):
            yield pool, await workspaces.spec(ledger)
        await pool.close()


async def parked(pool: Pool, count: int) -> None:
    """Wait until this many containers are ready."""
    async with asyncio.timeout(120):
        while sum(bucket.parked for bucket in pool.view()) != count:
            await asyncio.wait(set(pool._tasks) or {asyncio.create_task(asyncio.sleep(0.05))})


async def present(pool: Pool) -> set[str]:
    """Sids of all containers, after pending creations and removals."""
    while pool._tasks:
        await asyncio.wait(set(pool._tasks))
    return {info.sid for info in await pool._runtime.list()}


async def test_a_take_cut_off_during_the_liveness_check(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container is in no bucket and no session, but this process counts it as its own: no reaper removes it."""
    async with pool_of(settings) as (pool, spec):
        pool.want("ledger", spec, 1, for_s=60, now=True)
        await parked(pool, 1)
        (sid,) = pool.sids
        with monkeypatch.context() as slow:
            slow.setattr(pool, "_answers", lambda sandbox: asyncio.sleep(60))
            taking = asyncio.create_task(pool.take(spec))
            await asyncio.sleep(0.05)
            pool.want("ledger", spec, 0, for_s=60, now=True)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
        assert sid not in await present(pool)


async def test_takes_cut_off_while_they_wait(settings: Settings) -> None:
    """The container of a cancelled start is lost, or is given out twice."""
    async with pool_of(settings) as (pool, spec):
        for pause_s in (0.0, 0.02, 0.08, 0.12, 0.2):
            waiting = [asyncio.create_task(pool.take(spec)) for _ in range(3)]
            await asyncio.sleep(pause_s)
            for task in waiting[:2]:
                task.cancel()
            taken = await asyncio.gather(*waiting, return_exceptions=True)
            given = {result.sid for result in taken if not isinstance(result, BaseException)}
            assert given and not given & pool.sids
            assert await present(pool) == given | pool.sids
            for result in taken:
                if not isinstance(result, BaseException):
                    await pool._runtime.remove(result.sandbox.container_id)


async def test_a_kind_that_was_idle_is_parked_again(settings: Settings) -> None:
    """If a bucket is removed while a start looks into it, containers are left in a bucket that nothing reads."""
    async with pool_of(settings) as (pool, spec):
        pool.want("ledger", spec, 1, for_s=60, now=True)
        await parked(pool, 1)
        pool.want("ledger", spec, 0, for_s=60, now=True)
        check = pool._answers

        async def slow_and_dead(sandbox: Any) -> bool:
            pool._tidy()
            assert pool.view() == []
            await check(sandbox)
            return False

        pool._answers = slow_and_dead  # type: ignore[method-assign]
        taken = await pool.take(spec)
        assert not taken.warm
        pool.want("ledger", spec, 2, for_s=60, now=True)
        await parked(pool, 2)
        assert await present(pool) == {taken.sid} | pool.sids
        await pool._runtime.remove(taken.sandbox.container_id)
