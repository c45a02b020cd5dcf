"""Measures a node's host and server at intervals; heartbeats carry the figures, so that people can compare nodes."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sandbox_server.sandbox.base import Runtime

STALL_S = 0.25
"""Seconds of delay from which an event loop counts as stalled; also a bound of the histogram's buckets."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """What is read from elsewhere; each call takes well below a millisecond."""

    disk_used: Callable[[], float]
    """Used share of the engine's disk, 0 to 1. May raise OSError."""
    data_free_mb: Callable[[], float]
    """Free space in the data folder. May raise OSError."""
    stalls: Callable[[], int]
    """Stalls of the event loop since the server started."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement."""

    engine_ms: float
    """How long the engine took to describe itself."""
    clock_off_s: float
    """The engine's clock minus this server's; some 0.1 s of it may be the engine's rounding."""
    disk_used: float
    """Used share of the engine's disk, 0 to 1, of bytes or inodes."""
    data_free_mb: float
    """Free space in the data folder."""
    oom_kills: int | None
    """Processes killed on the host for lack of memory since the server started, at a sandbox's limit or at the host's;
    None: the engine runs on another host."""
    pulls: int
    """Images that are being pulled."""
    stalls: int
    """Times since the server started that its event loop stood still for 0.25 s or more."""


class Vitals:
    """Measures one node. `now` is {} before the first look."""

    def __init__(self, runtime: Runtime, gauges: Gauges) -> None:
        self._runtime = runtime
        self._gauges = gauges
        self._kills = runtime.inspector.kills_on_host()
        self.now: Mapping[str, float | None] = {}
        """The fields of the last `Reading`."""

    async def look(self) -> None:
        """Measure once. Raises EngineUnavailable, OSError: the last reading stays."""
        began = time.monotonic()
        facts = await self._runtime.facts()
        took_s, ours = time.monotonic() - began, datetime.now(UTC)
        kills = self._runtime.inspector.kills_on_host()
        disk_used, data_free_mb = await asyncio.gather(
            asyncio.to_thread(self._gauges.disk_used), asyncio.to_thread(self._gauges.data_free_mb)
        )
        reading = Reading(
            engine_ms=round(1000 * took_s, 1),
            clock_off_s=round((facts.time - ours).total_seconds() + took_s / 2, 2),
            disk_used=round(disk_used, 3),
            data_free_mb=round(data_free_mb),
            oom_kills=None if kills is None or self._kills is None else kills - self._kills,
            pulls=self._runtime.images.pulling,
            stalls=self._gauges.stalls(),
        )
        self.now = asdict(reading)
