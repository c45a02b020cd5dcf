"""CPU, memory and disk of this node's boxes, measured when somebody asks, so that nobody pays for them otherwise."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox_server import clock
from sandbox_server.boxes.view import BoxView
from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.outside import Usage

EVERY_S = 5.0
"""Figures of one box are this far apart, however often they are asked for; as at E2B."""
_FIRST_S = 0.25
"""Between the two readings that the first figure of CPU needs."""
_DISK_EVERY_S = 30.0
"""The engine walks all files that a box has written: some 0.1 s for ten thousand."""
_MOST = 360
"""Kept per box: half an hour of somebody who asks all the time."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One measurement of a box."""

    at: float
    """Unix seconds."""
    cpu_pct: float
    """Percent of the CPUs that the box may use, since the figures before."""
    memory_bytes: int
    cache_bytes: int
    disk_bytes: int
    """What the box has written; its image is not counted."""


@dataclass(slots=True)
class _OfBox:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    figures: deque[Figures] = field(default_factory=lambda: deque(maxlen=_MOST))
    last: Usage | None = None
    last_at: float = 0.0
    """By `time.monotonic`."""
    disk: int = 0
    disk_at: float = float("-inf")
    """By `time.monotonic`."""


class Measures:
    """Measures boxes of this node, and keeps what was measured while they live."""

    def __init__(self, runtime: Runtime, *, every_s: float = EVERY_S) -> None:
        self._runtime = runtime
        self._every_s = every_s
        self._of: dict[str, _OfBox] = {}

    async def now(self, view: BoxView) -> Sequence[Figures]:
        """All figures kept of the box, oldest first; the newest is less than `every_s` old, unless it is paused.

        Raises EngineUnavailable.
        """
        of_box = self._of.setdefault(view.sid, _OfBox())
        async with of_box.lock:
            if not view.paused and time.monotonic() - of_box.last_at >= self._every_s:
                with suppress(SandboxLost):  # it is just ending
                    await self._measure(view, of_box)
            return list(of_box.figures)

    def kept(self, sid: str) -> Sequence[Figures]:
        """What was measured earlier."""
        of_box = self._of.get(sid)
        return [] if of_box is None else list(of_box.figures)

    async def _measure(self, view: BoxView, of_box: _OfBox) -> None:
        if of_box.last is None:
            of_box.last, of_box.last_at = await self._read(view)
            await asyncio.sleep(_FIRST_S)
        if time.monotonic() - of_box.disk_at >= _DISK_EVERY_S:
            found = await self._runtime.disk_usage(view.record.container_id)
            of_box.disk, of_box.disk_at = found.get(view.record.container_id, 0), time.monotonic()
        usage, at = await self._read(view)
        share = (usage.cpu_s - of_box.last.cpu_s) / max(at - of_box.last_at, 1e-3) / max(view.box.cpus, 1e-3)
        of_box.last, of_box.last_at = usage, at
        of_box.figures.append(
            Figures(clock.now(), round(100 * max(0.0, share), 2), usage.memory_bytes, usage.cache_bytes, of_box.disk)
        )

    async def _read(self, view: BoxView) -> tuple[Usage, float]:
        return await self._runtime.outside.usage(view.record.container_id), time.monotonic()

    def keep(self, sids: Iterable[str]) -> None:
        """Forget all other boxes."""
        kept = set(sids)
        self._of = {sid: of_box for sid, of_box in self._of.items() if sid in kept}
