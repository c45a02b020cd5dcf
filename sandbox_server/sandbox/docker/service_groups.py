"""Groups: a sandbox with its services, their network and volumes, which are created before it and removed after it.

All parts of a group carry the same label. A killed server may leave a group without its sandbox; `remove_leftovers`
finds it by the label.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any

import docker.errors

from sandbox_server import clock, telemetry
from sandbox_server.errors import EngineUnavailable, SandboxLost, ServiceError
from sandbox_server.sandbox.base import ContainerSpec
from sandbox_server.sandbox.config import RuntimeConfig
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.group import Group, GroupCreation, run_in_service
from sandbox_server.sandbox.docker.labels import DEADLINE, GROUP, NODE, ROLE, SERVICE, SERVICE_NAME

log = telemetry.logger(__name__)

_ARCHIVE_S = 60.0  # for one file or folder of a service
_LEFT_S = 60.0  # seconds between two searches for leftovers


class ServiceGroups:
    """Creates and removes groups on one engine."""

    def __init__(self, engine: Engine, config: RuntimeConfig, seccomp: Sequence[str], boots: asyncio.Semaphore) -> None:
        """`boots` limits how many containers are created at a time."""
        self._engine = engine
        self._config = config
        self._bounds = config.services
        self._seccomp = seccomp
        self._boots = boots
        self._made = set[str]()
        """Groups that this process creates or uses."""
        self._look_at = 0.0
        """Loop time of the next search for leftovers."""

    @asynccontextmanager
    async def start_group(self, spec: ContainerSpec) -> AsyncIterator[Group | None]:
        """The running services of `spec`; None if it has none. If the body raises, they are removed.

        Raises:
            ImageUnavailable: a service was not ready within SANDBOX_SERVICE_START_S. EngineUnavailable.
        """
        if not spec.services:
            yield None
            return
        creation = GroupCreation(self._engine, self._config, self._seccomp, self._boots, spec)
        self._made.add(creation.name)
        try:
            yield await creation.make()
        except BaseException:
            await asyncio.shield(self._give_up(creation.name))
            raise

    async def _give_up(self, group: str) -> None:
        with suppress(ServiceError):  # otherwise the reaper finds it
            await self.remove(group)

    async def remove(self, group: str) -> None:
        """Remove the whole group. Idempotent."""
        self._made.discard(group)  # if this fails, the group is a leftover
        wanted = {"label": f"{GROUP}={group}"}
        found = await self._engine.call(lambda api: api.containers(all=True, filters=wanted))
        await asyncio.gather(*(self._gone(_container, one["Id"]) for one in found))
        volumes = await self._engine.call(lambda api: api.volumes(filters=wanted))
        await asyncio.gather(*(self._gone(_volume, one["Name"]) for one in volumes.get("Volumes") or ()))
        networks = await self._engine.call(lambda api: api.networks(filters=wanted))
        await asyncio.gather(*(self._gone(_network, one["Id"]) for one in networks))

    async def _gone(self, remove: Any, what: str) -> None:
        try:
            await self._engine.call(lambda api: remove(api, what))
        except EngineUnavailable as error:
            if "answered 404" not in error.detail:
                raise
        except SandboxLost:
            pass

    async def of(self, container_id: str) -> str:
        """The group of the sandbox in this container; "" if there is none, or no such container."""
        with suppress(SandboxLost):
            found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(container_id))
            return str((found["Config"].get("Labels") or {}).get(GROUP, ""))
        return ""

    async def members(self, group: str) -> list[str]:
        """Ids of the group's containers without the sandbox's own."""
        wanted = {"label": f"{GROUP}={group}"}
        found = await self._engine.call(lambda api: api.containers(all=True, filters=wanted))
        return [one["Id"] for one in found if one["Labels"].get(ROLE) == SERVICE]

    async def run(
        self, container_id: str, service: str, argv: Sequence[str], *, user: str, timeout_s: float
    ) -> int | None:
        """See `sandbox.base.Services.run`."""
        found = await self._service(container_id, service)
        return await run_in_service(self._engine, found, argv, timeout_s=timeout_s, user=user)

    async def archive(self, container_id: str, service: str, path: str, *, max_bytes: int) -> bytes | None:
        """See `sandbox.base.Services.archive`."""
        found = await self._service(container_id, service)
        return await self._engine.call(partial(_archive, found, path, max_bytes), timeout_s=_ARCHIVE_S)

    async def _service(self, container_id: str, service: str) -> str:
        wanted = {"label": [f"{GROUP}={await self.of(container_id)}", f"{SERVICE_NAME}={service}"]}
        found = await self._engine.call(lambda api: api.containers(all=True, filters=wanted))
        if not found:
            raise SandboxLost(f"the service {service} beside the container {container_id[:12]} is gone")
        return str(found[0]["Id"])

    def keep(self, group: str) -> None:
        """Do not treat the group as a leftover: another process created it, and this one uses it."""
        self._made.add(group)

    async def remove_leftovers(self) -> int:
        """Remove the groups of this node without a sandbox, and expired ones of a CLI command; return their number.

        Searches at most every `_LEFT_S`, because only a killed server or a failed removal leaves groups.
        """
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return 0
        containers = await self._engine.call(lambda api: api.containers(all=True, filters={"label": GROUP}))
        volumes = await self._engine.call(lambda api: api.volumes(filters={"label": GROUP}))
        networks = await self._engine.call(lambda api: api.networks(filters={"label": GROUP}))
        kept = self._made | {one["Labels"][GROUP] for one in containers if one["Labels"].get(ROLE) != SERVICE}
        parts = [*containers, *(volumes.get("Volumes") or ()), *networks]
        left = {part["Labels"][GROUP] for part in parts if self._may_go(part["Labels"])} - kept
        removed = 0
        for group in sorted(left):
            try:
                await self.remove(group)
            except ServiceError as error:
                log.warning("services not removed", group=group, code=error.code, error=error.detail)
            else:
                removed += 1
                log.info("services of a sandbox that is gone removed", group=group)
        self._look_at = now + (_LEFT_S if removed == len(left) else 0)
        return removed

    def _may_go(self, labels: dict[str, str]) -> bool:
        node = labels.get(NODE, "")
        if node == self._config.node:
            return True
        # as with containers: CLI commands on this node remove their own groups, unless they were killed
        return node.startswith(f"{self._config.node}+") and datetime.fromisoformat(labels[DEADLINE]) < clock.today()


def _archive(container_id: str, path: str, max_bytes: int, api: Any) -> bytes | None:
    try:
        pieces, _ = api.get_archive(container_id, path)
    except docker.errors.NotFound as error:
        if "Could not find the file" in str(error.explanation):
            return None
        raise
    whole = bytearray()
    try:
        for piece in pieces:
            whole += piece
            if len(whole) > max_bytes:
                raise OverflowError(f"{path} is longer than {max_bytes} bytes")
    finally:
        pieces.close()
    return bytes(whole)


def _container(api: Any, container_id: str) -> None:
    api.remove_container(container_id, force=True, v=True)


def _volume(api: Any, name: str) -> None:
    api.remove_volume(name, force=True)


def _network(api: Any, network_id: str) -> None:
    api.remove_network(network_id)
