"""A pause that the engine refuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sandbox_server import clock
from sandbox_server.boxes.events import BoxEvents
from sandbox_server.boxes.lives import BoxLives
from sandbox_server.errors import EngineUnavailable
from sandbox_server.records import BoxRecord, SessionRecord

from .test_box_view import BOX


class Part:
    """Redis, the log and an engine that refuses every pause."""

    def __init__(self) -> None:
        now = clock.now()
        self.record = SessionRecord("7", "live", "", "n1", "c0ffee", now, now, now + 100)
        self.box = replace(BOX, last_s=now + 1000)

    @asynccontextmanager
    async def lock(self, sid: str, wait_s: float) -> AsyncIterator[None]:
        yield

    async def with_session(self, sid: str) -> tuple[SessionRecord, BoxRecord]:
        return self.record, self.box

    async def change(self, box: BoxRecord, deadline: float) -> bool:
        self.box, self.record = box, replace(self.record, deadline=deadline)
        return True

    def add(self, record: SessionRecord, box: BoxRecord) -> None: ...

    async def pause(self, container_id: str) -> None:
        assert self.box.paused_at, "a crash between the two would leave a frozen box that counts as running"
        raise EngineUnavailable("the engine answered 500")


async def test_a_refused_pause_does_not_happen_later() -> None:
    """The client is told that the pause failed, works on, and the reaper freezes its box some seconds later."""
    part = Part()
    before = part.record, part.box
    lives = BoxLives(part, part, part, part, part, BoxEvents(), wait_s=1)  # type: ignore[arg-type]  # what it uses of them
    with pytest.raises(EngineUnavailable):
        await lives.pause("7")
    assert (part.record, part.box) == before
