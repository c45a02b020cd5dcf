"""Checkpoints that a session gets while it works, on a host that is busy."""

import asyncio

import pytest

from sandbox_server.app.build import open_server
from sandbox_server.settings import Settings
from sandbox_server.state.leases import Lease
from tests.waiting import eventually

from .test_session_ends import ACTION, INSTANCE


async def test_a_late_redis_costs_no_checkpoint(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is free, but Redis takes 0.2 s to give it: no checkpoint until the next action, and nobody is told."""
    async with open_server(settings.model_copy(update={"checkpoint_every": 1})) as server:
        sid = await server.sessions.service.start(INSTANCE)
        leases = server.foundation.data.store._leases
        lock = leases.lock

        async def late(lease: Lease) -> bool | None:
            await asyncio.sleep(0.2)
            return await lock(lease)

        async def there() -> bool:
            return (settings.data_dir / "checkpoints" / f"{sid}-1.json").exists()

        monkeypatch.setattr(leases, "lock", late)
        await server.sessions.service.act(sid, ACTION)
        await eventually(there)
