"""CPU time of containers: from the kernel's files if the engine runs on this host, else from the engine."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox_server.errors import SandboxLost, ServiceError
from sandbox_server.sandbox.base import CpuTime
from sandbox_server.sandbox.docker import cgroup
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.stats import stats

_ASKED = 2  # containers that the engine is asked about at a time: each answer takes it some ms
_KEPT = 10_000  # readings of removed containers that nobody has taken


class CpuTimes:
    """Reads containers. A file takes some 20 us; asking the engine takes some ms, once for a container with a file."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._files: dict[str, Path | None] = {}
        """Container -> its file; None: there is none that can be read here."""
        self._sids: dict[str, str] = {}
        """Container -> its session, if a last reading is wanted."""
        self._joined: dict[str, tuple[str, ...]] = {}
        """Container -> its services, whose CPU time counts as the container's."""
        self._last: deque[CpuTime] = deque(maxlen=_KEPT)
        self._asking = asyncio.Semaphore(_ASKED)

    def belongs(self, container_id: str, sid: str) -> None:
        """The container is (now) that of session `sid`: read it once more before it is removed."""
        self._sids[container_id] = sid

    def join(self, container_id: str, services: Iterable[str]) -> None:
        """Count the CPU time of `services` as the container's."""
        self._joined[container_id] = tuple(services)

    async def of(self, container_ids: Iterable[str]) -> dict[str, float]:
        """Seconds since each container's start, its services' included; without those that do not run."""
        ids = list(container_ids)
        found = await self._each([*ids, *(service for one in ids for service in self._joined.get(one, ()))])
        return {
            one: found[one] + sum(found.get(service, 0.0) for service in self._joined.get(one, ()))
            for one in ids
            if one in found
        }

    async def _each(self, ids: Sequence[str]) -> dict[str, float]:
        found = await self.near(ids)
        asked = [one for one in ids if one not in found]
        for one, cpu_s in zip(asked, await asyncio.gather(*map(self._ask, asked)), strict=True):
            if cpu_s is not None:
                found[one] = cpu_s
        return found

    async def near(self, container_ids: Iterable[str]) -> dict[str, float]:
        """Like `of`, without services, and only for containers that have a file here. Raises EngineUnavailable."""
        ids = list(container_ids)
        await asyncio.gather(*(self._find(one) for one in ids if one not in self._files))
        files = {one: path for one in ids if (path := self._files.get(one)) is not None}
        return await asyncio.to_thread(_read, files) if files else {}

    def idle_file(self, container_id: str) -> Path | None:
        """The switch of its idle class, if its CPU time has been read from a file."""
        file = self._files.get(container_id)
        return None if file is None else cgroup.idle_file(file)

    async def removing(self, container_id: str) -> None:
        """Read a container for the last time, if that is wanted. Raises nothing."""
        sid = self._sids.pop(container_id, None)
        if sid is not None:
            with suppress(ServiceError):
                for cpu_s in (await self.of([container_id])).values():
                    self._last.append(CpuTime(container_id, sid, cpu_s))
        for one in (container_id, *self._joined.pop(container_id, ())):
            self._files.pop(one, None)

    def take_last(self) -> list[CpuTime]:
        """The last readings of containers that were removed since the last call."""
        taken = list(self._last)
        self._last.clear()
        return taken

    async def _find(self, container_id: str) -> None:
        path = None
        if self._engine.local:
            path = await asyncio.to_thread(cgroup.default_cpu_file, container_id)
            if path is None:
                try:
                    async with self._asking:
                        found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(container_id))
                except SandboxLost:
                    return  # the container does not run: there is nothing to remember
                path = cgroup.cpu_file(int(found["State"]["Pid"]), container_id)
        self._files[container_id] = path

    async def _ask(self, container_id: str) -> float | None:
        """Ask the engine; None: it does not run."""
        try:
            async with self._asking:
                told = await self._engine.call(lambda api: stats(api, container_id))
        except SandboxLost:
            return None
        used = int((told["cpu_stats"].get("cpu_usage") or {}).get("total_usage", 0)) / 1e9
        return used or None  # the engine reports 0 for a container that does not run


def _read(files: dict[str, Path]) -> dict[str, float]:
    """CPU seconds by container, for the files that can be read: they vanish with the container's last process."""
    found = {container_id: cgroup.cpu_s(path) for container_id, path in files.items()}
    return {container_id: used for container_id, used in found.items() if used is not None}
