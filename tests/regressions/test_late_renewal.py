"""A lease's renewal that reaches Redis after the lease was given up.

It used to take the lease again for nobody, so that a session's next action waited out its bound and was told that
the session is busy: a few of a thousand actions on a busy machine.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox_server.records import ActionRecord, InFlight, SessionRecord
from sandbox_server.state import leases
from sandbox_server.state.connection import Connection, Script
from sandbox_server.state.keys import Keys
from sandbox_server.state.store import Store
from tests.conformance.state_backends import embedded


class LateRenewals(Connection):
    """Delays every renewal until `let_go`."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout_s=5)
        self.waiting, self.let_go, self.arrived = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def script(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        if script is not leases._RENEW:
            return await super().script(script, keys, args)
        self.waiting.set()
        await self.let_go.wait()
        answer = await super().script(script, keys, args)
        self.arrived.set()
        return answer


@pytest.mark.parametrize("way", ["action", "lock"])
async def test_a_late_renewal_takes_nothing(tmp_path: Path, way: str) -> None:
    """The session would stay locked, without a holder, until the lease runs out."""
    with embedded(tmp_path) as url:
        connection = LateRenewals(url)
        store = Store(connection, Keys("late:"), node="n", lock_lease_s=6, result_ttl_s=60)
        await store.open()
        now = time.time()
        await store.put_session(SessionRecord("7", "live", "a", "n", "c", now, now, now + 60))
        try:
            if way == "action":
                async with store.turn("7", InFlight("x", now, now + 9), wait_s=3) as turn:
                    await connection.waiting.wait()
                    action = ActionRecord("7", 1, "x", "y", "execute_bash", "finished", 0, now, 0.1)
                    await turn.acknowledge(action, cwd="/", talk_turns=0, timings_s={})
            else:
                async with store.lock("7", 3):
                    await connection.waiting.wait()
            connection.let_go.set()
            await connection.arrived.wait()
            async with store.lock("7", 3):
                pass
        finally:
            await store.close()
            await connection.close()
