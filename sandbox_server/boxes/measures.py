"""CPU, memory and disk of the boxes of this node, measured only on request."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandbox_server import clock, telemetry
from sandbox_server.boxes.view import BoxView
from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.base import Runtime
from sandbox_server.sandbox.inspector import Usage

log = telemetry.logger(__name__)

EVERY_S = 5.0
"""Minimum seconds between two measurements of a box, as at E2B."""
_FIRST_S = 0.25
"""Seconds between the two readings of the first CPU figure."""
_DISK_EVERY_S = 30.0
"""Seconds between disk measurements: the engine walks all written files, 0.1 s for ten thousand."""
_MOST = 360
"""Figures kept per box: half an hour of continuous requests."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One measurement of a box."""

    at: float
    """Unix seconds."""
    cpu_pct: float
    """Percent of the CPUs that the box may use, since the previous measurement."""
    memory_bytes: int
    cache_bytes: int
    disk_bytes: int
    """Bytes that the box has written, without its image."""


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
    """Measures boxes of this node, and keeps the figures while the boxes live."""

    def __init__(self, runtime: Runtime, *, every_s: float = EVERY_S) -> None:
        self._runtime = runtime
        self._every_s = every_s
        self._of: dict[str, _OfBox] = {}
        self._told = False

    async def now(self, view: BoxView) -> Sequence[Figures]:
        """All kept figures of the box, oldest first.

        Measures first if the newest figure is older than `every_s` and the box is not paused.

        Raises EngineUnavailable.
        """
        of_box = self._of.setdefault(view.sid, _OfBox())
        async with of_box.lock:
            if not view.paused and time.monotonic() - of_box.last_at >= self._every_s:
                try:
                    await self._measure(view, of_box)
                except SandboxLost:
                    await self._no_figures(view)
            return list(of_box.figures)

    async def _no_figures(self, view: BoxView) -> None:
        """Warn once if the engine has no figures of a running container; otherwise the box is just ending."""
        try:
            runs = not self._told and (await self._runtime.inspector.inspect(view.record.container_id)).running
        except SandboxLost:
            return
        if runs:
            self._told = True
            log.warning(
                "the engine gives no figures of running containers (`docker stats` is empty): boxes have no metrics. "
                "Are all of the host's cgroup controllers mounted?"
            )

    def kept(self, sid: str) -> Sequence[Figures]:
        """The kept figures, without a new measurement."""
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
        return await self._runtime.inspector.usage(view.record.container_id), time.monotonic()

    def keep(self, sids: Iterable[str]) -> None:
        """Forget all other boxes."""
        kept = set(sids)
        self._of = {sid: of_box for sid, of_box in self._of.items() if sid in kept}
