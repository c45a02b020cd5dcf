"""A pause that the engine refuses, and containers that differ from their records."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sandbox_server import clock
from sandbox_server.boxes.events import BoxEvents
from sandbox_server.boxes.lives import BoxLives
from sandbox_server.errors import EngineUnavailable
from sandbox_server.records import BoxRecord, SessionRecord
from sandbox_server.sandbox.container import ContainerInfo, Role

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

    async def change(self, box: BoxRecord, deadline: float) -> int:
        self.box, self.record = box, replace(self.record, deadline=deadline)
        return 1

    def is_behind(self, record: SessionRecord) -> bool:
        return False

    async def reconcile(self, sid: str) -> bool:
        return False

    def add(self, record: SessionRecord, box: BoxRecord) -> None: ...

    async def pause(self, container_id: str) -> None:
        assert self.box.paused_at, "a crash between the two would leave a frozen box that counts as running"
        raise EngineUnavailable("the engine answered 500")


class Engine(Part):
    """An engine with containers, and the box's record."""

    def __init__(self, *, paused_at: float, container: str, frozen: bool) -> None:
        super().__init__()
        self.record = replace(self.record, container_id=container)  # of no instance: a box
        self.box = replace(self.box, paused_at=paused_at)
        self.found = ContainerInfo(
            "c0ffee", Role.SESSION, "7", "n1", datetime.now(UTC), not frozen, "", held=False, paused=frozen
        )
        self.asked: list[str] = []

    def is_removing(self, sid: str) -> bool:
        return False

    async def all(self, sids: Sequence[str]) -> dict[str, BoxRecord]:
        return {self.record.sid: self.box}

    async def list(self) -> list[ContainerInfo]:
        return [self.found] if self.record.container_id else []

    async def pause(self, container_id: str) -> None:
        self.asked.append(f"pause {container_id}")

    async def unpause(self, container_id: str) -> None:
        self.asked.append(f"unpause {container_id}")


@pytest.mark.parametrize(
    ("paused_at", "frozen", "container", "asked"),
    [
        (1.0, False, "c0ffee", ["pause c0ffee"]),
        (0.0, True, "c0ffee", ["unpause c0ffee"]),
        (1.0, True, "c0ffee", []),  # the pause ended after the pass had listed the containers
        (0.0, False, "c0ffee", []),
        (1.0, False, "", []),  # its container was given up for its files
    ],
)
async def test_a_container_is_corrected_only_if_it_still_differs(
    paused_at: float, frozen: bool, container: str, asked: list[str]
) -> None:
    """The look comes first and takes no lock, so a pause or resume may end between it and the correction."""
    engine = Engine(paused_at=paused_at, container=container, frozen=frozen)
    lives = BoxLives(*[engine] * 5, BoxEvents(), engine, wait_s=1)  # type: ignore[arg-type, call-arg]  # as above
    differing = replace(engine.found, running=paused_at > 0, paused=paused_at == 0)
    await lives.follow([differing], [replace(engine.record, container_id="c0ffee")])
    assert engine.asked == asked


async def test_a_refused_pause_does_not_happen_later() -> None:
    """The client is told that the pause failed, works on, and the reaper freezes its box some seconds later."""
    part = Part()
    before = part.record, part.box
    lives = BoxLives(*[part] * 5, BoxEvents(), part, wait_s=1)  # type: ignore[arg-type, call-arg]  # what it uses of them
    with pytest.raises(EngineUnavailable):
        await lives.pause("7")
    assert (part.record, part.box) == before
