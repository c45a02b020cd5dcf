"""The definition of a fault, and the context in which it runs."""

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
"""Time limit for finding a rollout in the wanted state."""
_LOOK_S = 0.002
"""Polling interval; a postprocess takes some 50 ms."""


class NoEffect(ChaosFailed):
    """The fault did not take effect, so the fleet's behaviour proves nothing."""


@dataclass(frozen=True, slots=True)
class FaultContext:
    """A fleet with rollouts running on it."""

    fleet: Fleet
    trainer: Trainer

    @property
    def victim(self) -> Node:
        return self.fleet.victim

    async def off(self, call: Callable[[], object]) -> None:
        """Run a blocking step of the harness on a thread, beside the rollouts."""
        await asyncio.to_thread(call)

    def effect(self, seen: object, what: str) -> None:
        """Raises NoEffect unless `seen`."""
        if not seen:
            raise NoEffect(f"the fault had no effect: {what}")

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a blocking `condition`, evaluated on a thread. Raises ChaosFailed after `seconds`."""
        end = time.monotonic() + seconds
        while not await asyncio.to_thread(condition):
            if time.monotonic() > end:
                raise ChaosFailed(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(0.1)

    async def kill_server(self) -> None:
        """kill -9, and check that nothing listens any more."""
        await self.off(self.victim.server.end)
        self.effect(not await asyncio.to_thread(self.victim.listens), "the killed server still answers")

    async def ready_again(self) -> None:
        """Start the victim's server and wait until it is ready."""
        await self.off(self.victim.start)

    async def under_way(self, wanted: Callable[[Rollout], bool], after_s: float) -> Rollout:
        """A rollout on the victim whose wanted call has been waiting for `after_s`. Raises NoEffect."""
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
    """What a rollout should see of it, for the report."""
    harm: Callable[[FaultContext], Awaitable[str]]
    """Injects the fault, checks its effect, repairs it; returns the effect. Raises NoEffect, ChaosFailed."""
    nodes: int = 1
    """Number of nodes that it needs."""
    postgres: bool = False
    """It needs a database process; SQLite has none."""
    programs: tuple[str, ...] = ()
    """Programs that must be installed."""
    journal_gap_s: float = 0.0
    """Documented loss: journal entries of actions acknowledged within this time before the fault may be missing, while
    their effect stays."""


@asynccontextmanager
async def events(engine: Engine, *filters: str) -> AsyncIterator[asyncio.Queue[dict[str, Any]]]:
    """The engine's events from now on, e.g. with `event=create`."""
    words = [word for one in filters for word in ("--filter", one)]
    command = engine.command("events", "--format", "{{json .}}", *words)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    stream = process.stdout
    assert stream is not None  # requested above

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
