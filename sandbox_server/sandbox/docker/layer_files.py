"""Counts the files in the writable layers of containers, because the engine's sizes leave their overhead out.

The engine adds up the lengths of files. But a file of one byte takes a whole block of the disk, a folder takes a block
and has no length, and an empty file takes an inode. By the engine's sizes alone, a policy could fill its host's disk
within any limit.
"""

import asyncio
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from sandbox_server import telemetry
from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.docker import cgroup
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.spawned import Spawned, reading

log = telemetry.logger(__name__)

ENTRY_BYTES = 4096
"""Bytes added for each file or folder: at most one block of it is missing in the engine's sizes."""

_PIECE = 1 << 16
_KNOWN = 4096  # containers, most of them gone; more than a node has at a time


class LayerFiles:
    """Counts by `du`, where the engine is on this host and overlayfs keeps a layer in a folder of it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._uppers: dict[str, str] = {}
        """Container id -> its layer's folder; "" if there is none."""
        self._processes = cgroup.Processes()
        self._mounts_tell = False
        """Whether the mounts of a container's first process have once named the same folder as the engine."""

    async def of(self, container_ids: Collection[str], *, timeout_s: float) -> dict[str, int]:
        """Container id -> number of files and folders; without layers that alone cannot be counted in `timeout_s`."""
        if not self._engine.local:
            return {}
        if len(self._uppers) > _KNOWN:
            self._uppers.clear()
        await self._look_up([one for one in container_ids if one not in self._uppers])
        uppers = {self._uppers.get(container_id, ""): container_id for container_id in container_ids}
        uppers.pop("", None)
        counts = await _counted([*uppers], timeout_s)
        return {uppers[folder]: count for folder, count in counts.items()}

    async def _look_up(self, container_ids: Sequence[str]) -> None:
        """Note the layer's folder of each container that still exists."""
        left = list(container_ids)
        while left:
            if self._mounts_tell:
                self._uppers.update(await asyncio.to_thread(self._mounted, left))
            left = [one for one in left if one not in self._uppers]
            if left:
                await self._ask(left.pop())

    def _mounted(self, container_ids: Sequence[str]) -> dict[str, str]:
        """The layers' folders as the kernel names them: 0.1 ms each, where asking the engine takes 2."""
        found = {one: cgroup.upper_of(pid) for one in container_ids if (pid := self._processes.first_of(one))}
        return {one: upper for one, upper in found.items() if upper}

    async def _ask(self, container_id: str) -> None:
        """Ask the engine."""
        with suppress(ServiceError):  # it is gone
            told: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(container_id))
            driver = told.get("GraphDriver") or {}
            overlay = driver.get("Name") in ("overlay2", "overlay")
            upper = str((driver.get("Data") or {}).get("UpperDir", "")) if overlay else ""
            self._uppers[container_id] = upper
            # under another runtime, or seen from within a container, a process may have another root
            self._processes.learn(container_id, int(told["State"]["Pid"]))
            self._mounts_tell = bool(upper) and self._mounted([container_id]) == {container_id: upper}


async def _counted(folders: Sequence[str], timeout_s: float) -> dict[str, int]:
    """Counts by folder. If `du` does not end in time, it runs on each half: one huge layer must not hide the others."""
    if not folders:
        return {}
    try:
        async with asyncio.timeout(timeout_s):
            said = await _said(folders)
    except TimeoutError:
        half = len(folders) // 2
        if half:
            return {**await _counted(folders[:half], timeout_s), **await _counted(folders[half:], timeout_s)}
        log.warning("the files of a container's layer could not be counted in time", layer=folders[0])
        return {}
    except OSError:  # no `du` here
        return {}
    lines = (line.split("\t", 1) for line in said.splitlines() if "\t" in line)
    return {folder: int(count) for count, folder in lines if folder in folders}


async def _said(folders: Sequence[str]) -> str:
    """The output of `du` on the folders; `du` copes with paths of any length. Raises OSError."""
    words = ["nice", "du", "--inodes", "-s", "--", *folders]
    process = Spawned(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    said = bytearray()
    try:
        with reading(process.stdout) as lines:
            while piece := await lines.read(_PIECE):
                said += piece
        return said.decode(errors="replace")
    finally:
        process.kill()
