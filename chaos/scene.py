"""What a fault is, and what it is given."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from chaos.engine import Engine
from chaos.fleet import Fleet
from chaos.node import Node
from chaos.processes import ChaosFailed
from chaos.rollout import Rollout
from chaos.trainer import Trainer

FIND_S = 90.0
"""For a moment of the wanted kind to come."""
_LOOK_S = 0.002
"""A postprocess takes some 50 ms."""


class NoEffect(ChaosFailed):
    """The fault did not take place, so whatever the fleet did says nothing."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A fleet at work."""

    fleet: Fleet
    trainer: Trainer

    @property
    def victim(self) -> Node:
        return self.fleet.victim

    async def off(self, call: Callable[[], object]) -> None:
        """A blocking step of the harness, beside the rollouts."""
        await asyncio.to_thread(call)

    def effect(self, seen: object, what: str) -> None:
        """Raises NoEffect unless `seen`."""
        if not seen:
            raise NoEffect(f"the fault had no effect: {what}")

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a blocking `condition`, asked on a thread. Raises ChaosFailed past `seconds`."""
        end = time.monotonic() + seconds
        while not await asyncio.to_thread(condition):
            if time.monotonic() > end:
                raise ChaosFailed(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(0.1)

    async def kill_server(self) -> None:
        """kill -9, and see that nobody listens any more."""
        await self.off(self.victim.server.end)
        self.effect(not await asyncio.to_thread(self.victim.listens), "the killed server still answers")

    async def ready_again(self) -> None:
        """Start the victim's server, and wait until it is ready."""
        await self.off(self.victim.start)

    async def under_way(self, wanted: Callable[[Rollout], bool], after_s: float) -> Rollout:
        """A rollout of the victim's whose wanted call has been on the wire for `after_s`. Raises NoEffect."""
        end = time.monotonic() + FIND_S
        while time.monotonic() < end:
            for one in self.trainer.rollouts:
                since = one.since
                if one.node != self.victim.name or not wanted(one):
                    continue
                await asyncio.sleep(max(0.0, since + after_s - time.monotonic()))
                if wanted(one) and one.since == since:
                    return one
            await asyncio.sleep(_LOOK_S)
        raise NoEffect("no call of the wanted kind reached the victim")


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to harm a fleet."""

    name: str
    what: str
    """What is done, in a sentence, for the report."""
    sees: str
    """What a rollout is to see of it, for the report."""
    harm: Callable[[Scene], Awaitable[str]]
    """Does it, sees that it took effect, mends it again; gives what was seen. Raises NoEffect, ChaosFailed."""
    nodes: int = 1
    """How many nodes it needs."""
    postgres: bool = False
    """It needs a database that is a process; SQLite has none."""
    programs: tuple[str, ...] = ()
    """What must be installed for it."""
    journal_gap_s: float = 0.0
    """Documented loss: entries of actions acknowledged that shortly before the harm may be missing from the journal,
    while their effect stays."""


@asynccontextmanager
async def events(engine: Engine, *filters: str) -> AsyncIterator[asyncio.Queue[dict[str, Any]]]:
    """What the engine does from now on, e.g. of `event=create`, as it happens."""
    words = [word for one in filters for word in ("--filter", one)]
    command = engine.command("events", "--format", "{{json .}}", *words)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    stream = process.stdout
    assert stream is not None  # a pipe was asked for

    async def read() -> None:
        while line := await stream.readline():
            queue.put_nowait(json.loads(line))

    reader = asyncio.create_task(read())
    try:
        yield queue
    finally:
        reader.cancel()
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.gather(reader, return_exceptions=True)
