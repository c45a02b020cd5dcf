"""CPU weights: while half of the host's CPU time is in use, sandboxes that compute without a pause give way to others.

With equal weights a command of some milliseconds waits behind a busy neighbour each time one of its processes wakes on
the neighbour's CPU, even while another CPU is free. Neighbours in the kernel's idle class are preempted at once, and
still get all CPU time that nobody else wants; their shares relative to each other do not change. If others wanted all
CPU time, the class would starve them. So they are in it only while they get at least half of the CPU time in use.
Otherwise, and where the class cannot be set, they get a quarter of the normal weight.

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
from sandbox_server.sandbox.docker import cgroup
from sandbox_server.sandbox.docker.cpu_time import CpuTimes
from sandbox_server.sandbox.docker.engine import Engine

log = telemetry.logger(__name__)

NORMAL = 1024
"""The kernel's weight of a container that has none of its own."""
_HOST_BUSY = 0.5  # of its CPU time; below it a process that wakes finds a free CPU
_SOON_S = 0.25  # between the first two looks at a busy host
_BUSY_CPUS = 0.1  # of a sandbox, where few compete
_COMPETES_CPUS = 0.01
_CALM = 3  # looks in a row
_IDLE_SHARE = 0.5  # of the host's CPU time that the busy ones must get to be in the idle class
_CROWDED = 10  # looks without the idle class after the busy containers got less than that share


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
    """The containers that compute without a pause, of container -> CPUs that it used, on a busy host.

    That is a tenth of a CPU, or half of an equal share where many compete for few CPUs.
    """
    competing = sum(one > _COMPETES_CPUS for one in used.values())
    bound = min(_BUSY_CPUS, 0.5 * cpus / max(1, competing))
    return {container for container, one in used.items() if one > bound}


class CpuWeights:
    """Lowers and restores the weights of the containers that it watches."""

    def __init__(self, engine: Engine, cpu: CpuTimes, *, busy_shares: int) -> None:
        """`busy_shares`: weight of a busy container; `NORMAL`: weights are restored and never lowered."""
        self._engine = engine
        self._cpu = cpu
        self._busy_shares = busy_shares
        self._watched: set[str] = set()
        self._host: HostTime | None = None
        self._read: dict[str, tuple[float, float]] = {}
        """Container -> (time, CPU seconds) at the last look, if that was made while the host was busy."""
        self._calm: dict[str, int] = {}
        """Container that gives way -> looks since it was last busy."""
        self._weighed: set[str] = set()
        """Containers that have the lower weight."""
        self._idle: set[str] = set()
        """Containers that are in the idle class."""
        self._crowded = 0
        """Looks until the idle class may be used."""

    def watch(self, container_id: str, *, shares: int = 0, adopted: bool = False) -> None:
        """A session's container is open. `shares`: its present weight; 0: the engine's default, which is `NORMAL`."""
        self._watched.add(container_id)
        if 0 < shares < NORMAL:  # an earlier server lowered it
            self._weighed.add(container_id)
        if adopted:  # an earlier server may have left it in the idle class
            self._idle.add(container_id)
            self._calm[container_id] = 0

    async def forget(self, container_id: str) -> None:
        """The container is being removed."""
        self._watched.discard(container_id)
        await self.hasten(container_id)
        self._gave_way(container_id)

    async def hasten(self, container_id: str) -> None:
        """Take a container out of the idle class: on a full host its processes could need minutes to end or freeze."""
        await self._leave_idle_class(container_id)

    async def look(self) -> None:
        """Compare with the last look; costs a line of /proc unless the host is busy or a container gives way.

        Raises:
            EngineUnavailable: for some containers the engine did not answer; the next look tries them again.

        """
        used_cpus = await self._used_cpus() if self._busy_shares < NORMAL else 0.0
        cpus = os.cpu_count() or 1
        host_busy = used_cpus >= _HOST_BUSY * cpus
        used = await self._used(self._watched if host_busy else self._calm)
        if host_busy and self._read and not used:  # the first look at a busy host has nothing to compare with
            await asyncio.sleep(_SOON_S)
            used = await self._used(self._watched)
        computing = busy(used, cpus) if host_busy else set()
        self._crowded = max(0, self._crowded - 1)
        if host_busy and used and sum(used.get(one, 0.0) for one in computing | self._idle) < _IDLE_SHARE * used_cpus:
            self._crowded = _CROWDED
            computing |= self._idle  # a starved container does not look busy
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

    async def _used_cpus(self) -> float:
        """CPUs of the host that were in use since the last look; 0: not known."""
        try:
            now = await asyncio.to_thread(HostTime.now)  # takes a millisecond on a host with many CPUs
        except OSError:  # not Linux
            return 0.0
        before, self._host = self._host, now
        return 0.0 if before is None else now.used_since(before) * (os.cpu_count() or 1)

    async def _used(self, container_ids: Iterable[str]) -> dict[str, float]:
        """Container -> CPUs that it used since the last look; only those that were read at the last look."""
        ids, now = list(container_ids), time.monotonic()
        before, read = self._read, await self._cpu.near(ids) if ids else {}
        self._read = {one: (now, cpu_s) for one, cpu_s in read.items()}
        return {one: (cpu_s - before[one][1]) / (now - before[one][0]) for one, cpu_s in read.items() if one in before}

    async def _lower(self, container_id: str) -> None:
        if not self._crowded and await self._put_in_idle_class(container_id, yes=True):
            self._idle.add(container_id)
        else:
            if await self._leave_idle_class(container_id) or container_id not in self._weighed:
                await self._weigh(container_id, self._busy_shares)
                self._weighed.add(container_id)
        if container_id in self._watched:  # it may have been removed while the engine was asked
            self._calm[container_id] = 0
        else:
            self._gave_way(container_id)

    async def _restore(self, container_id: str) -> None:
        looks = self._calm.get(container_id, 0) + 1
        if looks >= _CALM:
            await self._leave_idle_class(container_id)
            if container_id in self._weighed:
                await self._weigh(container_id, NORMAL)
            self._gave_way(container_id)
        elif container_id in self._calm:
            self._calm[container_id] = looks

    def _gave_way(self, container_id: str) -> None:
        self._calm.pop(container_id, None)
        self._weighed.discard(container_id)
        self._idle.discard(container_id)

    async def _leave_idle_class(self, container_id: str) -> bool:
        """Take the container out of the idle class. Returns whether it may have been in it.

        If so, the kernel has given it the weight `NORMAL`, whatever weight it had before.
        """
        if container_id not in self._idle:
            return False
        await self._put_in_idle_class(container_id, yes=False)
        self._idle.discard(container_id)
        return True

    async def _put_in_idle_class(self, container_id: str, *, yes: bool) -> bool:
        """Set the class. Returns False if that is impossible: the kernel is too old, or the server lacks the right."""
        file = self._cpu.idle_file(container_id)
        return file is not None and await asyncio.to_thread(cgroup.write_idle, file, idle=yes)

    async def _weigh(self, container_id: str, shares: int) -> None:
        await self._engine.call(lambda api: api.update_container(container_id, cpu_shares=shares))
        log.debug("CPU weight", container_id=container_id, cpu_shares=shares)
