"""Records and turns as a server makes them."""

import asyncio
import dataclasses
import time
from collections.abc import Callable

from sandbox_server.records import ActionRecord, InFlight, SessionRecord
from sandbox_server.state.codec import in_flight_of
from sandbox_server.state.store import Store

Open = Callable[..., "asyncio.Future[Store]"]


def session(sid: str = "7", **changes: object) -> SessionRecord:
    now = time.time()
    record = SessionRecord(sid, "live", "a__b-1", "n1", "c0ffee", now, now, now + 3600, cwd="/testbed")
    return dataclasses.replace(record, **changes)


def in_flight(content: str = "true") -> InFlight:
    return InFlight(content, 1.0, 101.0)


async def left_in_flight(store: Store, sid: str) -> InFlight | None:
    text = await store._connection.send("GET", store._keys.in_flight(sid))
    return None if text is None else in_flight_of(text)


def action(seq: int = 1, sid: str = "7", **changes: object) -> ActionRecord:
    record = ActionRecord(sid, seq, "true", f"observation {seq}", "execute_bash", "finished", 0, 5.0, 0.5)
    return dataclasses.replace(record, **changes)


async def do(store: Store, seq: int, sid: str = "7", key: str = "") -> None:
    async with store.turn(sid, in_flight(f"n{seq}"), idempotency_key=key, wait_s=5) as turn:
        assert turn.may_run
        await turn.acknowledge(action(seq, sid, idempotency_key=key), cwd=f"/{seq}", talk_turns=seq, timings_s={})
