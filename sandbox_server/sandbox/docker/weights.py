"""CPU weights: while all CPUs of the host are in use, sandboxes that compute without a pause give way to the others.

With equal weights a command of some milliseconds waits behind each busy neighbour, every time one of its processes
wakes. With a quarter of the weight the neighbours still get all of the CPU that nobody else wants, and one another's
share does not change.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox_server import telemetry
from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.docker.cpu_time import CpuTimes
from sandbox_server.sandbox.docker.engine import Engine

log = telemetry.logger(__name__)

NORMAL = 1024
"""The kernel's weight of a container that has none of its own."""
_FULL = 0.9  # of the host's CPU time; below it a process that wakes finds a CPU soon
_BUSY_CPUS = 0.1  # of a sandbox, where few compete
_COMPETES_CPUS = 0.01
_CALM = 3  # looks in a row


@dataclass(frozen=True, slots=True)
class HostTime:
    """CPU time of the host since its boot, in ticks."""

    idle: int
    all: int

    @classmethod
    def now(cls, *, root: Path = Path("/")) -> "HostTime":
        """Raises OSError."""
        words = (root / "proc/stat").read_text().partition("\n")[0].split()[1:9]
        ticks = [int(word) for word in words]
        return cls(ticks[3] + ticks[4], sum(ticks))

    def used_since(self, before: "HostTime") -> float:
        """Share of all CPUs, 0 to 1; 0 for less than a tick."""
        ticks = self.all - before.all
        return 1 - (self.idle - before.idle) / ticks if ticks else 0.0


def busy(used: dict[str, float], cpus: int) -> set[str]:
    """The containers that compute without a pause, of container -> CPUs that it used, on a host without a free CPU.

    That is a tenth of a CPU, or half of an equal share where many compete for few CPUs.
    """
    competing = sum(one > _COMPETES_CPUS for one in used.values())
    bound = min(_BUSY_CPUS, 0.5 * cpus / max(1, competing))
    return {container for container, one in used.items() if one > bound}


class CpuWeights:
    """Lowers and restores weights through the engine, one look after the other."""

    def __init__(self, engine: Engine, cpu: CpuTimes, *, busy_shares: int) -> None:
        """`busy_shares`: weight of a busy container, below `NORMAL`."""
        self._engine = engine
        self._cpu = cpu
        self._busy_shares = busy_shares
        self._host: HostTime | None = None
        self._read: dict[str, tuple[float, float]] = {}
        """Container -> (time, CPU seconds) at the last look, if that was made while the host was full."""
        self._calm: dict[str, int] = {}
        """Container with the lower weight -> looks since it was last busy."""

    async def look(self, container_ids: Iterable[str]) -> None:
        """Compare with the last look; costs a line of /proc unless the host is full or a weight is lowered.

        Raises:
            EngineUnavailable: weights stay as they are until the next look.

        """
        full, ids = self._is_full(), set(container_ids)
        self._calm = {one: looks for one, looks in self._calm.items() if one in ids}
        wanted = ids if full else set(self._calm)
        now, read = time.monotonic(), await self._cpu.near(wanted) if wanted else {}
        used = {
            one: (cpu_s - self._read[one][1]) / (now - self._read[one][0])
            for one, cpu_s in read.items()
            if one in self._read
        }
        self._read = {one: (now, cpu_s) for one, cpu_s in read.items()}
        computing = busy(used, os.cpu_count() or 1) if full else set()
        for one in computing:
            if one not in self._calm:
                await self._weigh(one, self._busy_shares)
            self._calm[one] = 0
        for one in [*self._calm]:
            if one not in computing:
                self._calm[one] += 1
                if self._calm[one] >= _CALM:
                    await self._weigh(one, NORMAL)
                    del self._calm[one]

    def _is_full(self) -> bool:
        before, self._host = self._host, HostTime.now()
        return before is not None and self._host.used_since(before) >= _FULL

    async def _weigh(self, container_id: str, shares: int) -> None:
        with suppress(SandboxLost):  # it has ended meanwhile
            await self._engine.call(lambda api: api.update_container(container_id, cpu_shares=shares))
            log.debug("CPU weight", container_id=container_id, cpu_shares=shares)
