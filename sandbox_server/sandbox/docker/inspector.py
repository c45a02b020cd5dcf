"""Inspects containers through the engine's API; see `sandbox.inspector`."""

import asyncio
import math
import os
import posixpath
import stat
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import docker.errors
import requests
from docker import APIClient

from sandbox_server import telemetry
from sandbox_server.errors import EngineUnavailable, SandboxLost, ServiceError
from sandbox_server.sandbox.base import ContainerSpec, Runtime, Sandbox
from sandbox_server.sandbox.docker.answers import read
from sandbox_server.sandbox.docker.cgroup import Kills, Processes, kills, memory_limit
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.stats import stats
from sandbox_server.sandbox.inspector import (
    FILES,
    ChangedPaths,
    ContainerDetails,
    CurrentLimits,
    FolderUnreadable,
    Usage,
)
from sandbox_server.sandbox.tree import HostAccessFailed, Tree, plain_overlay

log = telemetry.logger(__name__)

_NEAR = 0.95  # of the limit; the kernel counts usage in batches
_MKDIR_S = 10.0
_COPY_S = 120.0
_CHUNK = 1 << 18
_PATHS = 500_000  # of changed files; listing them takes two seconds
_NO_WAY = ("too many links", "too many levels of symbolic links", "not a directory", "file name too long")
"""In the engine's words: what stands at a path leads nowhere. Nothing but links and files there can cause it."""
_MOST = 16 << 30  # bytes of a copy; an archive stores the holes of a sparse file as bytes


class DockerInspector:
    """Implements `ContainerInspector`."""

    def __init__(self, engine: Engine, runtime: Runtime, *, oci_runtime: str | None) -> None:
        self._engine = engine
        self._runtime = runtime
        # gVisor keeps a container's writes in its own file, which neither the engine nor the host can read
        self._sees_files = "runsc" not in (oci_runtime or "")
        self._processes = Processes()

    @property
    def sees_files(self) -> bool:
        """See `ContainerInspector.sees_files`."""
        return self._sees_files

    async def inspect(self, container_id: str) -> ContainerDetails:
        """See `ContainerInspector.inspect`. The memory limit is the kernel's, if that is lower than the engine's."""
        found = await self._inspect(container_id)
        details, pid = _details(found), int(found["State"]["Pid"])
        if pid and self._engine.local and details.limits and (own := memory_limit(pid)) is not None:
            memory_mb = min(details.limits.memory_mb or math.inf, own / 2**20)
            return replace(details, limits=replace(details.limits, memory_mb=memory_mb))
        return details

    async def freeze_or_kill(self, container_id: str) -> ContainerDetails:
        """See `ContainerInspector.freeze_or_kill`."""
        with suppress(SandboxLost):  # it is not running
            if not await self._frozen(container_id):
                await self._engine.call(lambda api: api.kill(container_id, "KILL"))
                await self._engine.call(lambda api: api.wait(container_id, timeout=30))
        return await self.inspect(container_id)

    async def _frozen(self, container_id: str) -> bool:
        """Freeze it; False: the host cannot."""
        try:
            await self._runtime.pause(container_id)
        except EngineUnavailable as error:
            if self._engine.fault:
                raise
            log.info("a container cannot be frozen", container_id=container_id, error=error.detail)
            return False
        return True

    async def usage(self, container_id: str) -> Usage:
        """See `ContainerInspector.usage`."""
        told = await self._engine.call(lambda api: stats(api, container_id))
        memory = told.get("memory_stats") or {}
        if "usage" not in memory:
            raise SandboxLost(f"the container {container_id[:12]} is not running")
        kinds = memory.get("stats") or {}
        cache = kinds.get("total_cache", kinds.get("file", 0))
        unused = kinds.get("total_inactive_file", kinds.get("inactive_file", 0))
        return Usage(
            cpu_s=told["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9,
            memory_bytes=max(0, memory["usage"] - unused),
            cache_bytes=cache,
        )

    async def hit_memory_limit(self, container_id: str) -> bool:
        """See `ContainerInspector.hit_memory_limit`.

        With cgroup version 2 the kernel's counters decide, if readable: the engine reports a process killed for lack of
        host memory in the same way. Otherwise: before engine 24 the state of a running container does not show it; the
        engine's events do, but only its last 256; with cgroup version 1 the highest memory usage does, which takes the
        engine a second.
        """
        if (own := await self._kills(container_id)) and own.at_limit is not None:
            return own.at_limit
        if (await self.inspect(container_id)).oom_killed:
            return True
        if await self._told_of_ooms(0.0, container=[container_id]):
            return True
        told = await self._engine.call(lambda api: stats(api, container_id, one_shot=False))
        memory = told.get("memory_stats") or {}
        peak, limit = memory.get("max_usage", 0), memory.get("limit", 0)
        return bool(limit) and peak >= limit * _NEAR

    async def kills_in(self, container_id: str) -> int | None:
        """See `ContainerInspector.kills_in`."""
        own = await self._kills(container_id)
        return None if own is None else own.killed

    async def _kills(self, container_id: str) -> Kills | None:
        pid = int((await self._inspect(container_id))["State"]["Pid"])
        return kills(pid) if pid and self._engine.local else None

    async def kills_at_limits(self, *, since: float) -> int:
        """See `ContainerInspector.kills_at_limits`."""
        return await self._told_of_ooms(since)

    async def _told_of_ooms(self, since: float, **filters: list[str]) -> int:
        asked = {"event": ["oom"], **filters}
        until = int(time.time()) + 1
        return len(await self._engine.call(lambda api: list(api.events(since=int(since), until=until, filters=asked))))

    def kills_on_host(self) -> int | None:
        """See `ContainerInspector.kills_on_host`."""
        if not self._engine.local:
            return None
        with suppress(OSError), open("/proc/vmstat") as counters:
            for line in counters:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return None

    async def changed_paths(self, container_id: str) -> ChangedPaths | None:
        """See `ContainerInspector.changed_paths`: overlayfs keeps it in a folder of the host, if this is that host."""
        driver = (await self._inspect(container_id)).get("GraphDriver") or {}
        upper = (driver.get("Data") or {}).get("UpperDir")
        if (
            driver.get("Name") not in ("overlay2", "overlay")
            or not upper
            or not (self._engine.local and self._sees_files and plain_overlay())
        ):
            return None
        return await asyncio.to_thread(_upper, upper.encode())

    async def tree(self, container_id: str) -> Tree:
        """See `ContainerInspector.tree`: by /proc, if this is the engine's host and we are root there."""
        if not (self._engine.local and self._sees_files):
            raise HostAccessFailed("the engine runs on another host, or its OCI runtime keeps the files to itself")
        tree = await asyncio.to_thread(self._tree, container_id)
        if tree is None:
            pid = int((await self._inspect(container_id))["State"]["Pid"])
            if not pid:
                raise HostAccessFailed("the container does not run")
            self._processes.learn(container_id, pid)
            tree = await asyncio.to_thread(Tree, pid, container_id)
        return tree

    def _tree(self, container_id: str) -> Tree | None:
        """None: the engine has to say which process is the container's first one."""
        with suppress(HostAccessFailed):  # it has ended since
            if (pid := self._processes.first_of(container_id)) is not None:
                return Tree(pid, container_id)
        return None

    async def create_reader(self, container_id: str, spec: ContainerSpec, *, folder: str) -> Sandbox:
        """See `ContainerInspector.create_reader`."""
        found = await self._inspect(container_id)
        root = ((found.get("GraphDriver") or {}).get("Data") or {}).get("MergedDir")
        if root and found["State"]["Running"]:
            # fails if the engine remaps users: its containers' root may not enter the parent folders
            with suppress(EngineUnavailable):
                return await self._runtime.create(replace(spec, mounts={root: FILES}))
        sandbox = await self._runtime.create(spec)
        try:
            await self._copy(container_id, sandbox, folder)
        except BaseException:
            with suppress(ServiceError):
                await self._runtime.remove(sandbox.container_id)
            raise
        return sandbox

    async def _copy(self, container_id: str, sandbox: Sandbox, folder: str) -> None:
        parent = FILES + posixpath.dirname(folder)
        await sandbox.exec(["mkdir", "-p", "--", parent], timeout_s=_MKDIR_S, user="root")
        deadline = time.monotonic() + _COPY_S
        await self._engine.call(
            lambda api: _copy(api, container_id, folder, sandbox.container_id, parent, deadline), timeout_s=_COPY_S + 10
        )

    async def _inspect(self, container_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(container_id))
        return found


def _upper(folder: bytes) -> ChangedPaths | None:
    """The paths of an overlay's upper folder, without its marks of removed files. None: it cannot be read."""
    folders, others = [b"/"], []
    waiting = [b""]
    try:
        while waiting:
            path = waiting.pop()
            with os.scandir(folder + path) as entries:
                for entry in entries:
                    below = path + b"/" + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(below)
                        waiting.append(below)
                    elif not (stat.S_ISCHR(mode := entry.stat(follow_symlinks=False).st_mode) or stat.S_ISSOCK(mode)):
                        others.append(below)
                    if len(folders) + len(others) > _PATHS:
                        return None
    except OSError:  # not this host's, not allowed, or it changed in between
        return None
    return ChangedPaths(folders, others)


def _details(found: dict[str, Any]) -> ContainerDetails:
    state, host = found["State"], found["HostConfig"]
    if state["Status"] in ("removing", "dead"):
        raise SandboxLost(f"the container {found['Id'][:12]} is being removed")
    return ContainerDetails(
        image=found["Image"],
        created_at=found["Created"],
        running=bool(state["Running"]),
        oom_killed=bool(state["OOMKilled"]),
        exit_code=int(state["ExitCode"]),
        limits=CurrentLimits(
            memory_mb=(host.get("Memory") or 0) / 2**20,
            cpus=(host.get("NanoCpus") or 0) / 1e9,
            pids=host.get("PidsLimit") or 0,
        ),
    )


def _copy(api: APIClient, source: str, folder: str, target: str, parent: str, deadline: float) -> None:
    """The engine packs and unpacks, each below its container's root; bytes are only passed through here."""
    url = f"{api.base_url}/v{api.api_version}/containers/{source}/archive"
    with api.get(url, params={"path": folder}, stream=True, timeout=api.timeout) as answer:
        if answer.status_code == 404 and "no such container" not in answer.text.lower():
            raise FolderUnreadable(f"{folder} does not exist")
        if answer.status_code == 500 and any(words in answer.text for words in _NO_WAY):
            raise FolderUnreadable(f"{folder} leads nowhere")
        try:
            answer.raise_for_status()
        except requests.HTTPError as e:
            raise docker.errors.APIError(str(e), response=answer, explanation=answer.text[:500]) from e
        # Go's os.ModeDir; a link in place of the folder would be copied as a link
        if not read(b64decode(answer.headers.get("X-Docker-Container-Path-Stat", "")))["mode"] >> 31 & 1:
            raise FolderUnreadable(f"{folder} is no longer a folder")
        api.put_archive(target, parent, _bounded(answer, deadline))


def _bounded(answer: requests.Response, deadline: float) -> Iterator[bytes]:
    size = 0
    for chunk in answer.iter_content(_CHUNK):
        size += len(chunk)
        if size > _MOST:
            raise FolderUnreadable(f"its files are larger than {_MOST >> 30} GB")
        if time.monotonic() > deadline:
            raise FolderUnreadable(f"its files could not be copied within {_COPY_S:g} s")
        yield chunk
