"""Publishes this node's state every few seconds, and handles requests of other nodes: drain, announcements, ends."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sandbox_server import telemetry
from sandbox_server.fleet.placement import Placement
from sandbox_server.images.workspaces import TASK_IMAGE_LABEL
from sandbox_server.sandbox.base import Runtime
from sandbox_server.state.nodes import NodeRecord, Nodes, Status

log = telemetry.logger(__name__)

_IMAGES_EVERY_S = 10.0  # between lists of images; after a change, listing a hundred costs the daemon 20 ms
_TELL_AGAIN_S = 3600.0  # after which an unchanged list is sent again, because Redis may have lost it


class Load(Protocol):
    """The use of this node's slots (`starts`)."""

    @property
    def used(self) -> int:
        """Slots in use."""
        ...

    @property
    def waiting(self) -> int:
        """Starts that wait for a slot."""
        ...

    def parked(self) -> dict[str, int]:
        """Instance id -> containers ready for a start."""
        ...


@dataclass(frozen=True, slots=True)
class NodeRequests:
    """The handlers of requests that other nodes leave in Redis for this one."""

    announced: Callable[[Sequence[str]], Awaitable[object]]
    """Prepares for starts of these instances, which are expected to be placed here."""
    ends: Callable[[], Awaitable[None]]
    """Ends the sessions of this node whose end was requested."""


class Heartbeat:
    """Sends heartbeats until the server ends; sets `drained` when the node is draining and nothing is left to do."""

    def __init__(
        self,
        nodes: Nodes,
        runtime: Runtime,
        starts: Load,
        placement: Placement,
        facts: NodeRecord,
        *,
        gradings: Callable[[], int],
        faults: Callable[[], Mapping[str, str]],
        vitals: Callable[[], Mapping[str, float | None]],
        requests: NodeRequests,
    ) -> None:
        """`facts`: the constant part of the record; `gradings()`: the number running or waiting here."""
        self._nodes = nodes
        self._runtime = runtime
        self._starts = starts
        self._placement = placement
        self._facts = facts
        self._gradings = gradings
        self._faults = faults
        self._vitals = vitals
        self._requests = requests
        self._beats = 0
        self._told: tuple[frozenset[str], frozenset[str]] | None = None
        self._told_at = self._looked_at = float("-inf")
        self.drained = asyncio.Event()
        """Set once the node is drained: nothing is left to do, and nothing new will come."""

    async def beat(self) -> None:
        """Send one heartbeat and handle requests of other nodes. Raises StateUnavailable, EngineUnavailable."""
        self._placement.draining = await self._nodes.draining()
        known = await self._nodes.beat(self._record())
        self._beats += 1
        if not known and self._beats > 1:
            log.warning("this node was unknown to Redis or taken for dead; it is back")
            self._told = None
        await self._tell_images()
        if names := await self._nodes.announced():
            await self._requests.announced(names)
        await self._requests.ends()
        if self._placement.draining and not self._starts.used and not self._gradings():
            await self._nodes.leave()
            await self._nodes.clear_drain(self._facts.node)
            self.drained.set()

    def _record(self) -> NodeRecord:
        return replace(
            self._facts,
            status=Status.DRAINING if self._placement.draining else Status.READY,
            used=self._starts.used,
            waiting=self._starts.waiting,
            parked=self._starts.parked(),
            gradings=self._gradings(),
            faults=dict(self._faults()),
            vitals=self._vitals(),
            beats=self._beats,
        )

    async def _tell_images(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < _IMAGES_EVERY_S:
            return
        self._looked_at = now
        present, prepared = set(), set()
        for image in await self._runtime.images.all():
            source = image.labels.get(TASK_IMAGE_LABEL)
            if source is None:
                present.add(image.name)
            else:
                prepared.add(source)
        told = (frozenset(present), frozenset(prepared))
        if told != self._told or now - self._told_at > _TELL_AGAIN_S:
            await self._nodes.hold(*told)
            self._told, self._told_at = told, now
