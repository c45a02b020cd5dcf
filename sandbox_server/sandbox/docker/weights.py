"""CPU weights: while all CPUs of the host are in use, sandboxes that compute without a pause give way to the others.

With equal weights a command of some milliseconds waits behind each busy neighbour, every time one of its processes
wakes. With a quarter of the weight the neighbours still get all of the CPU that nobody else wants, and one another's
share does not change.

Tried besides, on Linux 6.18 and a machine that others used: SCHED_IDLE for the threads of busy containers (their group
keeps its share; p99 of the others no better), time slices of 100 ms for them (the others' median a fifth shorter, p99
five times as long) or of 10 ms, and of 0.1 or 0.5 ms for the others (nothing that could be told from noise).
"""

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox_server import telemetry
from sandbox_server.errors import EngineUnavailable, SandboxLost
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
    """Lowers and restores the weights of the containers that it watches, through the engine."""

    def __init__(self, engine: Engine, cpu: CpuTimes, *, busy_shares: int) -> None:
        """`busy_shares`: weight of a busy container; `NORMAL`: weights are restored and never lowered."""
        self._engine = engine
        self._cpu = cpu
        self._busy_shares = busy_shares
        self._watched: set[str] = set()
        self._host: HostTime | None = None
        self._read: dict[str, tuple[float, float]] = {}
        """Container -> (time, CPU seconds) at the last look, if that was made while the host was full."""
        self._calm: dict[str, int] = {}
        """Container with the lower weight -> looks since it was last busy."""

    def watch(self, container_id: str, *, shares: int = 0) -> None:
        """A session's container is open. `shares`: its present weight; 0: the engine's default, which is `NORMAL`."""
        self._watched.add(container_id)
        if 0 < shares < NORMAL:  # an earlier server lowered it
            self._calm[container_id] = 0

    def forget(self, container_id: str) -> None:
        """The container is being removed."""
        self._watched.discard(container_id)
        self._calm.pop(container_id, None)

    async def look(self) -> None:
        """Compare with the last look; costs a line of /proc unless the host is full or a weight is lowered.

        Raises:
            EngineUnavailable: for some containers the engine did not answer; the next look tries them again.

        """
        full = self._busy_shares < NORMAL and await self._is_full()
        used = await self._used(self._watched if full else self._calm)
        computing = busy(used, os.cpu_count() or 1) if full else set()
        fault: EngineUnavailable | None = None
        for one in computing | self._calm.keys():
            try:
                await (self._lower(one) if one in computing else self._restore(one))
            except SandboxLost:
                continue  # it has ended meanwhile
            except EngineUnavailable as error:
                fault = error
        if fault is not None:
            raise fault

    async def _is_full(self) -> bool:
        try:
            now = await asyncio.to_thread(HostTime.now)  # takes a millisecond on a host with many CPUs
        except OSError:  # not Linux
            return False
        before, self._host = self._host, now
        return before is not None and now.used_since(before) >= _FULL

    async def _used(self, container_ids: Iterable[str]) -> dict[str, float]:
        """CPUs that each used since the last look, of those that were read then."""
        ids, now = list(container_ids), time.monotonic()
        before, read = self._read, await self._cpu.near(ids) if ids else {}
        self._read = {one: (now, cpu_s) for one, cpu_s in read.items()}
        return {one: (cpu_s - before[one][1]) / (now - before[one][0]) for one, cpu_s in read.items() if one in before}

    async def _lower(self, container_id: str) -> None:
        if container_id not in self._calm:
            await self._weigh(container_id, self._busy_shares)
        if container_id in self._watched:  # it may have gone while the engine was asked
            self._calm[container_id] = 0

    async def _restore(self, container_id: str) -> None:
        looks = self._calm.get(container_id, 0) + 1
        if looks >= _CALM:
            await self._weigh(container_id, NORMAL)
            self._calm.pop(container_id, None)
        elif container_id in self._calm:
            self._calm[container_id] = looks

    async def _weigh(self, container_id: str, shares: int) -> None:
        await self._engine.call(lambda api: api.update_container(container_id, cpu_shares=shares))
        log.debug("CPU weight", container_id=container_id, cpu_shares=shares)
