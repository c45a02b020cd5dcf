"""Starts the services of a sandbox: their network, their volumes, and each container once its dependencies are ready.

The network is internal and has no address on the host (`inhibit_ipv4`), so nothing leads from it to the host, to
another sandbox or outside. The containers find each other by their hosts files. Their name server is an address where
nothing listens: the engine's own would forward other names to the name servers of the host.
"""

import asyncio
import io
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial
from ipaddress import IPv4Network
from typing import Any

import docker.types

from sandbox_server import telemetry
from sandbox_server.errors import EngineUnavailable, ImageUnavailable, SandboxLost, ServiceError
from sandbox_server.sandbox.base import ContainerSpec
from sandbox_server.sandbox.bash import boot
from sandbox_server.sandbox.config import RuntimeConfig
from sandbox_server.sandbox.docker.creation import (
    CAPABILITIES,
    NAME_OPTIONS,
    NO_NAME_SERVER,
    NetworkEndpoint,
    networking_config,
    ulimits,
)
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.labels import DEADLINE, GROUP, NODE, ROLE, SERVICE, SERVICE_NAME, SID, TOKEN
from sandbox_server.sandbox.services import Condition, HealthCheck, ServiceSpec

log = telemetry.logger(__name__)

_MAIN = "main"
_BITS = 28  # length of a network's prefix, enough for 13 containers
_TRIES = 20  # attempts to find a free network
_LOOK_S = 0.1
_SETTLE_S = 0.5  # time in which a service without a health check ends if it cannot run
_LOG_BYTES = 500


@dataclass(frozen=True, slots=True)
class Group:
    """The running services of one sandbox."""

    endpoint: NetworkEndpoint
    """For the sandbox's own container."""
    subnet: str
    hosts: tuple[str, ...]
    """`name:address` lines for its hosts file."""
    services: tuple[str, ...]
    """Container ids."""


class GroupCreation:
    """One group that is being created."""

    def __init__(
        self,
        engine: Engine,
        config: RuntimeConfig,
        seccomp: Sequence[str],
        boots: asyncio.Semaphore,
        spec: ContainerSpec,
    ) -> None:
        """`spec`: of the sandbox. `boots` limits how many containers are created at a time."""
        self.name = secrets.token_hex(8)
        self._engine = engine
        self._config = config
        self._bounds = config.services
        self._seccomp = seccomp
        self._boots = boots
        self._spec = spec
        self._network_name = f"sandbox-{self.name}"
        self._labels = {
            NODE: config.node,
            GROUP: self.name,
            # an image that was committed from one of our containers has its labels
            ROLE: SERVICE,
            SID: "",
            TOKEN: "",
            DEADLINE: spec.deadline.astimezone(UTC).isoformat(),
        }
        self._hosts: tuple[str, ...] = ()
        """Lines for the hosts file of each container, once the network exists."""
        self._ids: dict[str, str] = {}
        self._started: dict[str, float] = {}
        self._checks: dict[str, HealthCheck | None] = {}
        self._well = set[tuple[str, Condition]]()
        self._stage = "its network"

    async def make(self) -> Group:
        """Start all services and wait until they are ready. After an error, what was created stays for the caller to
        remove.

        Raises:
            ImageUnavailable: a service was not ready within SANDBOX_SERVICE_START_S. EngineUnavailable.
        """
        try:
            async with asyncio.timeout(self._bounds.start_s):
                return await self._make()
        except TimeoutError:
            raise ImageUnavailable(
                f"the task's services are not ready within {self._bounds.start_s:g} s (SANDBOX_SERVICE_START_S):"
                f" waited for {self._stage}{await self._said()}"
            ) from None

    async def _make(self) -> Group:
        spec = self._spec
        subnet = await self._network()
        own, *others = [str(host) for host in list(subnet.hosts())[1 : len(spec.services) + 2]]
        addresses = dict(zip((service.name for service in spec.services), others, strict=True))
        names = {_MAIN: own} | {
            alias: addresses[service.name] for service in spec.services for alias in (service.name, *service.aliases)
        }
        self._hosts = tuple(f"{name}:{address}" for name, address in names.items())
        volumes = await self._volumes()
        if volumes:
            await self._hold({volume for own in volumes.values() for volume in own.values()})
        for service in spec.services:
            for other, condition in service.after:
                await self._until(other, condition)
            self._stage = f"the container of {service.name}"
            async with self._boots:
                await self._start(service, addresses[service.name], volumes.get(service.name, {}))
        completed = {name for name, condition in spec.awaits if condition == "completed"}
        for service in spec.services:
            await self._until(service.name, "completed" if service.name in completed else "healthy")
        return Group(self._endpoint(own), str(subnet), self._hosts, tuple(self._ids.values()))

    def _endpoint(self, address: str) -> NetworkEndpoint:
        return NetworkEndpoint(self.name, self._network_name, address)

    async def _network(self) -> IPv4Network:
        whole = self._bounds.networks
        for _ in range(_TRIES):
            number = secrets.randbelow(1 << (_BITS - whole.prefixlen))
            subnet = IPv4Network((int(whole.network_address) + (number << (32 - _BITS)), _BITS))
            try:
                await self._engine.call(partial(_create_network, self._network_name, subnet, self._labels))
            except EngineUnavailable as error:
                if "overlap" not in error.detail:
                    raise
                continue
            return subnet
        raise EngineUnavailable(f"no free network in {whole} (SANDBOX_SERVICE_NETWORKS)")

    async def _volumes(self) -> dict[str, dict[str, str]]:
        """Path -> volume, for each service that has volumes."""
        volumes: dict[str, dict[str, str]] = {}
        for service in self._spec.services:
            config = (await self._engine.call(partial(_image, service.image))).get("Config") or {}
            self._checks[service.name] = service.health or _own_check(config.get("Healthcheck") or {})
            # volumes that the image declares would be on the host's disk without a limit
            declared = sorted(config.get("Volumes") or ())
            own = {path: f"image-{service.name}-{number}" for number, path in enumerate(declared)}
            if own or service.volumes:
                volumes[service.name] = {**own, **dict(service.volumes)}
        return volumes

    async def _hold(self, volumes: set[str]) -> None:
        """Keep the volumes mounted: an in-memory volume is emptied when no running container mounts it."""
        await self._engine.call(partial(self._create_holder, sorted(volumes)))

    def _create_holder(self, volumes: Sequence[str], api: Any) -> None:
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={self._bounds.volume_mb}m,mode=0755"}
        for volume in volumes:
            api.create_volume(self._volume(volume), driver="local", driver_opts=options, labels=self._labels)
        program, *arguments = boot.command(replace(self._spec, with_shell=False))
        host = api.create_host_config(
            # no_copy: the content of a new volume comes from the image of the service that has it
            mounts=[
                docker.types.Mount(f"/held/{number}", self._volume(volume), type="volume", no_copy=True)
                for number, volume in enumerate(volumes)
            ],
            mem_limit="32m",
            pids_limit=8,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges", *self._seccomp],
            log_config=docker.types.LogConfig(type="none"),
            runtime=self._config.oci_runtime,
        )
        created = api.create_container(
            self._spec.image,
            entrypoint=[program],
            command=arguments,
            user="65534",
            network_disabled=True,
            healthcheck={"test": ["NONE"]},
            labels=self._labels,
            host_config=host,
        )
        api.start(created["Id"])

    def _volume(self, name: str) -> str:
        return f"{self._network_name}-{name}"

    async def _start(self, service: ServiceSpec, address: str, volumes: dict[str, str]) -> None:
        self._ids[service.name] = container_id = await self._engine.call(
            partial(self._create, service, address, volumes)
        )
        if service.files:
            await self._engine.call(lambda api: api.put_archive(container_id, "/", io.BytesIO(service.files)))
        try:
            await self._engine.call(lambda api: api.start(container_id))
        except (EngineUnavailable, SandboxLost) as error:
            if "answered 400" in error.detail or "executable file not found" in error.detail:
                raise ImageUnavailable(f"the service {service.name} cannot be started: {error.detail}") from error
            raise
        self._started[service.name] = asyncio.get_running_loop().time()

    def _create(self, service: ServiceSpec, address: str, volumes: dict[str, str], api: Any) -> str:
        bounds = self._bounds
        memory_mb = min(service.memory_mb or bounds.memory_mb, bounds.memory_mb)
        host = api.create_host_config(
            network_mode=self._network_name,
            extra_hosts=list(self._hosts),
            dns=[NO_NAME_SERVER],
            dns_opt=list(NAME_OPTIONS),
            mem_limit=f"{memory_mb}m",
            memswap_limit=f"{memory_mb}m",
            nano_cpus=int(min(service.cpus or bounds.cpus, bounds.cpus) * 1e9),
            pids_limit=bounds.pids,
            ulimits=ulimits(self._spec.limits),
            cap_drop=["ALL"],
            cap_add=CAPABILITIES,
            security_opt=["no-new-privileges", *self._seccomp],
            # the error for a service that does not become ready quotes the end of its output
            log_config=docker.types.LogConfig(type="json-file", config={"max-size": "1m", "max-file": "1"}),
            tmpfs=dict.fromkeys(service.tmpfs, f"size={bounds.volume_mb}m"),
            mounts=[docker.types.Mount(path, self._volume(volume), type="volume") for path, volume in volumes.items()],
            restart_policy={"Name": "on-failure", "MaximumRetryCount": 10} if service.restart else None,
            runtime=self._config.oci_runtime,
        )
        created: dict[str, Any] = api.create_container(
            service.image,
            command=None if service.command is None else list(service.command),
            # an empty list would mean the image's own
            entrypoint=None if service.entrypoint is None else list(service.entrypoint) or [""],
            user=service.user or None,
            working_dir=service.workdir or None,
            hostname=service.hostname or service.name,
            environment=dict(service.env),
            labels={**self._labels, SERVICE_NAME: service.name},
            healthcheck={"test": ["NONE"]},  # we run it until it first succeeds; the engine would repeat it for ever
            networking_config=networking_config(api, self._endpoint(address)),
            host_config=host,
        )
        return str(created["Id"])

    async def _until(self, name: str, condition: Condition) -> None:
        """Wait until the service meets the condition. Raises ImageUnavailable: it exited before."""
        if condition == "started" or (name, condition) in self._well:
            return
        self._stage = f"{name} to be {condition}"
        if condition == "completed":
            await self._engine.call(
                partial(_wait, self._ids[name], self._bounds.start_s), timeout_s=self._bounds.start_s
            )
            await self._ended_well(name)
        else:
            await self._healthy(name)
        self._well.add((name, condition))

    async def _healthy(self, name: str) -> None:
        """Wait until it runs and its health check, if any, has succeeded, or until it has exited with 0."""
        check = self._checks[name]
        if check is None:
            await asyncio.sleep(self._started[name] + _SETTLE_S - asyncio.get_running_loop().time())
        while True:
            if not (await self._state(name))["Running"]:
                return await self._ended_well(name)
            if check is None or await self._succeeds(self._ids[name], check):
                return None
            await asyncio.sleep(check.interval_s)

    async def _succeeds(self, container_id: str, check: HealthCheck) -> bool:
        try:
            return await run_in_service(self._engine, container_id, check.test, timeout_s=check.timeout_s) == 0
        except ServiceError as error:  # the service exited, or its image lacks the program; the next round tells which
            log.info("health check not run", code=error.code, error=error.detail)
        return False

    async def _state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(self._ids[name]))
        state: dict[str, Any] = found["State"]
        return state

    async def _ended_well(self, name: str) -> None:
        state = await self._state(name)
        if state["ExitCode"] != 0:
            out = ", out of memory (SANDBOX_SERVICE_MEMORY_MB)" if state["OOMKilled"] else ""
            raise ImageUnavailable(
                f"the task's service {name} ended with {state['ExitCode']}{out}{await self._said([name])}"
            )

    async def _said(self, names: Iterable[str] | None = None) -> str:
        """The end of the output of these services, for an error."""
        told = ""
        for name in names or self._ids:
            with suppress(ServiceError):
                text: bytes = await self._engine.call(partial(_end_of_log, self._ids[name]))
                told += f"; {name} said: {text.decode('utf-8', 'replace').strip()[-_LOG_BYTES:]}" if text else ""
        return told


async def run_in_service(
    engine: Engine, container_id: str, argv: Sequence[str], *, timeout_s: float, user: str = ""
) -> int | None:
    """Run a command in the container of a service; returns its exit code, or None if it runs longer than `timeout_s`.

    `user`: "" is the container's own. The exit code is 126 or 127 if the container lacks the user or the program.

    Raises:
        SandboxLost, EngineUnavailable: the command was not run.
    """
    ends = asyncio.get_running_loop().time() + timeout_s
    made: dict[str, Any] = await engine.call(lambda api: api.exec_create(container_id, list(argv), user=user))

    async def state() -> dict[str, Any]:
        found: dict[str, Any] = await engine.call(lambda api: api.exec_inspect(made["Id"]))
        return found

    try:
        await engine.call(lambda api: api.exec_start(made["Id"], detach=True))
    except EngineUnavailable:
        # The engine answers 400 or 500 also if something is wrong in the container; then it has noted an exit code.
        if not (await state()).get("ExitCode"):
            raise
    while asyncio.get_running_loop().time() < ends:
        found = await state()
        if not found["Running"]:
            code = found.get("ExitCode")
            return None if code is None else int(code)
        await asyncio.sleep(_LOOK_S)
    return None


def _own_check(found: dict[str, Any]) -> HealthCheck | None:
    """The image's health check."""
    test = found.get("Test") or ["NONE"]
    if test[0] == "NONE":
        return None
    argv = ("/bin/sh", "-c", test[1]) if test[0] == "CMD-SHELL" else tuple(test[1:])
    return HealthCheck(argv, timeout_s=(found.get("Timeout") or 30_000_000_000) / 1e9)


def _create_network(name: str, subnet: IPv4Network, labels: dict[str, str], api: Any) -> None:
    pool = docker.types.IPAMPool(subnet=str(subnet), gateway=str(subnet.network_address + 1))
    api.create_network(
        name,
        driver="bridge",
        internal=True,
        labels=labels,
        ipam=docker.types.IPAMConfig(pool_configs=[pool]),
        options={"com.docker.network.bridge.inhibit_ipv4": "true"},
    )


def _image(name: str, api: Any) -> dict[str, Any]:
    found: dict[str, Any] = api.inspect_image(name)
    return found


def _wait(container_id: str, timeout_s: float, api: Any) -> None:
    api.wait(container_id, timeout=timeout_s)


def _end_of_log(container_id: str, api: Any) -> bytes:
    text: bytes = api.logs(container_id, tail=10)
    return text
