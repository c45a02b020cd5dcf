"""Containers on one Docker engine: created with limits, isolation and labels, and found again by their labels."""

import asyncio
import json
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sandbox_server.errors import EngineUnavailable, ImageUnavailable, SandboxExhausted, SandboxLost, ServiceError
from sandbox_server.sandbox.base import ContainerInfo, ContainerSpec, CpuTime, Role
from sandbox_server.sandbox.bash.fifo_folders import FifoFolders
from sandbox_server.sandbox.bash.fifo_stream import discard_left
from sandbox_server.sandbox.bash.fifos import TARGET, Fifos
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.config import EngineFacts as EngineFacts
from sandbox_server.sandbox.config import RuntimeConfig as RuntimeConfig
from sandbox_server.sandbox.docker.container import DockerContainer
from sandbox_server.sandbox.docker.cpu_time import CpuTimes
from sandbox_server.sandbox.docker.creation import RuntimeAdditions, create
from sandbox_server.sandbox.docker.egress import Guard, switch_network
from sandbox_server.sandbox.docker.endings import how_it_ended, remove
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.freezing import freeze, is_frozen, thaw
from sandbox_server.sandbox.docker.group import Group
from sandbox_server.sandbox.docker.images import Images
from sandbox_server.sandbox.docker.inspector import DockerInspector
from sandbox_server.sandbox.docker.labels import ASSIGNED, EGRESS, GROUP, NODE, ROLE, TOKEN
from sandbox_server.sandbox.docker.layer_files import LayerFiles
from sandbox_server.sandbox.docker.listing import info_of, layer_bytes, of_node, sandboxes, sid_of
from sandbox_server.sandbox.docker.service_groups import ServiceGroups
from sandbox_server.sandbox.docker.weights import CpuWeights
from sandbox_server.sandbox.egress import Egress
from sandbox_server.sandbox.health import until_healthy

_NO_SOURCE = "bind source path does not exist"
_DISK_USAGE_S = 120.0
_COUNT_S = 60.0  # for the files of layers; a layer within the limit takes some seconds at most
_PROBE_S = 2.0  # a healthy daemon answers in a millisecond
_REMOVALS = 4  # at a time: a training step's end requests hundreds; the daemon also serves starts and live sessions


class DockerRuntime:
    """Implements `sandbox.base.Runtime`."""

    _container_of: type[DockerContainer] = DockerContainer
    _images_of: type[Images] = Images
    _inspector_type: type[DockerInspector] = DockerInspector
    _fifo_runtimes = frozenset({None, "runc", "crun"})
    """OCI runtimes whose containers have the host's FIFOs; None: the engine's default, which boot.bash finds out."""

    def __init__(self, engine: Engine, config: RuntimeConfig) -> None:
        self._engine = engine
        self._config = config
        self._seccomp = self._seccomp_option(config.seccomp) if config.seccomp else ()
        self._boots = asyncio.Semaphore(config.boot_concurrency)
        self._looks = asyncio.Semaphore(config.boot_concurrency)  # separate from starts: an ending session holds a slot
        self._removals = asyncio.Semaphore(_REMOVALS)
        self.images: Images = self._images_of(engine, pull=config.pull, pull_timeout_s=config.pull_timeout_s)
        self.inspector: DockerInspector = self._inspector_type(engine, self, oci_runtime=config.oci_runtime)
        self._fifos = FifoFolders(config.fifos, config.node)
        if not engine.local:
            self._fifos.give_up("the engine runs on another host")
        elif config.oci_runtime not in self._fifo_runtimes:
            self._fifos.give_up(f"not known to work with {config.oci_runtime or 'this engine'}")
        self._open: dict[str, BashSandbox] = {}
        self._cpu = CpuTimes(engine)
        self._weights = CpuWeights(engine, self._cpu, busy_shares=config.busy_cpu_shares)
        self.services: ServiceGroups = ServiceGroups(engine, config, self._seccomp, self._boots)
        self._layer_files = LayerFiles(engine)
        self._groups: dict[str, str] = {}
        """Open container that has services -> its group."""
        own_token = secrets.token_hex(16)
        self._held = {own_token}  # tokens of the containers that are being created or are open
        self._guard = Guard(
            engine,
            self.images,
            config.egress,
            image=config.egress_image,
            name_server=config.egress_dns,
            node=config.node,
            token=own_token,
            oci_runtime=config.oci_runtime,
        )

    @staticmethod
    def _seccomp_option(profile: Path) -> tuple[str, ...]:
        """The security option for a profile: its text, which Docker's client reads from the file too."""
        return (f"seccomp={json.dumps(json.loads(profile.read_bytes()), separators=(',', ':'))}",)

    async def create(self, spec: ContainerSpec) -> BashSandbox:
        """See `sandbox.base.Runtime.create`."""
        token = secrets.token_hex(16)
        self._held.add(token)
        for image in (spec.image, *(service.image for service in spec.services)):
            self.images.used(image)
        # no FIFOs for a grading: its channels become commands whose exit status only the engine reports reliably
        folder = self._fifos.make() if spec.with_shell or spec.role is Role.SESSION else None
        try:
            async with self.services.start_group(spec) as group:
                try:
                    async with self._looks if spec.mounts else self._boots:
                        sandbox = await self._boot_container(spec, token, folder, group)
                except SandboxExhausted as error:  # nothing that a policy has made runs there yet
                    raise EngineUnavailable(
                        f"the engine's host starts no further process ({error.detail}); or SANDBOX_PIDS, or pids of the"
                        f" instance, is too low for a container: {spec.limits.pids}"
                    ) from error
                await self._healthy(sandbox, spec)
        except BaseException as error:
            if isinstance(error, ImageUnavailable):
                self.images.forget()
            self._held.discard(token)
            if folder is not None:
                Fifos(folder).remove()
            raise
        self._open[sandbox.container_id] = sandbox
        if spec.role is Role.SESSION:
            self._weights.watch(sandbox.container_id)
        if group is not None:
            self._groups[sandbox.container_id] = group.endpoint.group
            self._cpu.join(sandbox.container_id, group.services)
        self._meter(sandbox.container_id, spec.role, spec.sid)
        return sandbox

    async def _boot_container(
        self, spec: ContainerSpec, token: str, folder: Path | None, group: Group | None
    ) -> BashSandbox:
        began = time.monotonic()
        rules, hosts = await self._guard.rules_of(spec, group_subnet=group.subnet if group else "")
        additions = RuntimeAdditions(
            self._config,
            token=token,
            egress=rules,
            hosts=[*hosts, *(group.hosts if group else ())],
            seccomp=self._seccomp,
            group_endpoint=group.endpoint if group else None,
        )
        creating = asyncio.ensure_future(self._created(spec, additions, folder))
        try:
            container_id = await asyncio.shield(creating)
        except asyncio.CancelledError:
            # the daemon may create the container all the same: wait for its answer, then remove it
            await asyncio.shield(self._undo(creating))
            raise
        self._guard.keep(container_id, rules)
        sandbox = self._sandbox(container_id, token, spec.role, folder)
        try:
            if spec.with_shell:
                await sandbox.boot()
                sandbox.boot_s = {"create": time.monotonic() - began - sandbox.boot_s["shell"], **sandbox.boot_s}
            else:
                await sandbox.begin()
        except SandboxLost as e:
            how = await how_it_ended(self._engine, container_id)
            sandbox.close()
            await asyncio.shield(self._undo(creating))
            raise ImageUnavailable(
                f"a container of {spec.image} ended before its shell was ready{how};"
                " a task image needs bash, coreutils, findutils and git"
            ) from e
        except BaseException:
            sandbox.close()
            await asyncio.shield(self._undo(creating))
            raise
        return sandbox

    async def attach(self, container_id: str) -> BashSandbox:
        """See `sandbox.base.Runtime.attach`."""
        known = self._open.get(container_id)
        if known is not None:
            return known
        found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(container_id))
        labels = found["Config"].get("Labels") or {}
        if labels.get(NODE) != self._config.node or TOKEN not in labels:
            raise SandboxLost(f"the container {container_id[:12]} is not one of node {self._config.node}")
        rules = labels.get(EGRESS, "")
        if rules:
            await self._guard.found(container_id, rules, found["State"], with_shell=found["Config"]["Tty"])
            self._guard.keep(container_id, rules)
        self._held.add(labels[TOKEN])
        if group := labels.get(GROUP, ""):
            self.services.keep(group)
            self._groups[container_id] = group
            self._cpu.join(container_id, await self.services.members(group))
        source = next((mount["Source"] for mount in found["Mounts"] if mount["Destination"] == TARGET), None)
        folder = Path(source) if source else None
        if folder is not None:
            discard_left(folder)
        sandbox = self._sandbox(container_id, labels[TOKEN], Role(labels[ROLE]), folder)
        if found["State"].get("Paused"):
            sandbox.clock.stop()
        if Role(labels[ROLE]) is Role.SESSION:
            self._weights.watch(container_id, shares=found["HostConfig"].get("CpuShares") or 0, adopted=True)
        self._meter(container_id, Role(labels[ROLE]), sid_of([found["Name"]], labels))
        return self._open.setdefault(container_id, sandbox)

    async def list(self) -> list[ContainerInfo]:
        """See `sandbox.base.Runtime.list`."""
        found: list[dict[str, Any]] = await self._engine.call(
            lambda api: api.containers(all=True, filters={"label": [NODE, ROLE]})
        )
        self._guard.resolvers.tend(found)
        found = sandboxes(found)
        mounts = {mount.get("Source", "") for container in found for mount in container.get("Mounts", ())}
        await asyncio.to_thread(self._fifos.remove_left, mounts)
        infos = [info_of(c, self.images.named(c["Image"]), self._held) for c in found]
        return of_node(infos, self._config.node)

    async def remove(self, container_id: str) -> None:
        """See `sandbox.base.Runtime.remove`."""
        self._guard.forget(container_id)
        sandbox = self._open.pop(container_id, None)
        await self._weights.forget(container_id)
        group = self._groups.pop(container_id, "")
        if sandbox is not None:
            sandbox.close()
        try:
            async with self._removals:
                if sandbox is None and not group:  # that of another server
                    group = await self.services.of(container_id)
                await self._cpu.removing(container_id)
                await remove(self._engine, container_id)
                if group:
                    await self.services.remove(group)
        finally:
            if sandbox is not None:
                self._held.discard(sandbox.token)
                if sandbox.fifos is not None:
                    sandbox.fifos.remove()

    async def remove_leftovers(self) -> int:
        """See `sandbox.base.Runtime.remove_leftovers`."""
        return await self.services.remove_leftovers()

    async def assign(self, container_id: str, sid: str) -> None:
        """See `sandbox.base.Runtime.assign`. A label cannot be changed, a name can."""
        await self._engine.call(lambda api: api.rename(container_id, f"{ASSIGNED}{sid}-{container_id[:12]}"))
        self._meter(container_id, Role.SESSION, sid)

    async def cpu_times(self, container_ids: Iterable[str]) -> dict[str, float]:
        """See `sandbox.base.Runtime.cpu_times`."""
        return await self._cpu.of(container_ids)

    def take_last_cpu_times(self) -> Sequence[CpuTime]:
        """See `sandbox.base.Runtime.take_last_cpu_times`."""
        return self._cpu.take_last()

    async def weigh(self) -> None:
        """See `sandbox.base.Runtime.weigh`."""
        if self._engine.local:
            await self._weights.look()

    def _meter(self, container_id: str, role: Role, sid: str) -> None:
        if self._config.meter_cpu and role is Role.SESSION:
            self._cpu.belongs(container_id, sid)

    async def connect(self, container_id: str, *, on: bool) -> bool:
        """See `sandbox.base.Runtime.connect`."""
        return await switch_network(self._engine, container_id, on=on)

    async def restrict(self, container_id: str, egress: Egress | None) -> None:
        """See `sandbox.base.Runtime.restrict`."""
        await self._guard.change(container_id, egress)

    async def refused(self, container_id: str) -> int | None:
        """See `sandbox.base.Runtime.refused`."""
        return await self._guard.refused(container_id)

    async def watch_egress(self) -> None:
        """Kill restricted containers that somebody else starts, until the engine ends its event stream."""
        await self._guard.watch()

    async def pause(self, container_id: str) -> None:
        """See `sandbox.base.Runtime.pause`."""
        sandbox = self._open.get(container_id)
        if sandbox is not None:
            sandbox.clock.stop()
        await self._weights.hasten(container_id)
        try:
            await freeze(self._engine, container_id)
        except EngineUnavailable:
            with suppress(ServiceError):  # else nobody knows; the reaper compares it with its record
                if sandbox is not None and not await is_frozen(self._engine, container_id):
                    sandbox.clock.go()
            raise

    async def unpause(self, container_id: str) -> None:
        """See `sandbox.base.Runtime.unpause`."""
        await thaw(self._engine, container_id)
        if (sandbox := self._open.get(container_id)) is not None:
            sandbox.clock.go()

    async def ping(self) -> None:
        """Return if the daemon answers. Raises EngineUnavailable."""
        await self._engine.call(lambda api: api.ping())

    @property
    def fault(self) -> str:
        """What is wrong while the daemon does not answer; else ""."""
        return self._engine.fault

    async def probe_engine(self, *, timeout_s: float) -> None:
        """If the daemon did not answer the last call, ask it again; the result updates `fault`."""
        if self._engine.fault:
            with suppress(ServiceError):
                await self._engine.probe(timeout_s=max(_PROBE_S, timeout_s))

    async def facts(self) -> EngineFacts:
        """See `EngineFacts`."""
        info: dict[str, Any] = await self._engine.call(lambda api: api.info())
        return EngineFacts(
            product=self._engine.product,
            version=info["ServerVersion"],
            url=self._engine.url,
            storage_driver=info["Driver"],
            root_dir=info["DockerRootDir"],
            cpus=info["NCPU"],
            memory_mb=info["MemTotal"] >> 20,
            time=datetime.fromisoformat(info["SystemTime"]),
            without_fifos=self._fifos.unused,
            seccomp=any("seccomp" in option for option in info.get("SecurityOptions") or ()),
            runtimes=frozenset(info.get("Runtimes") or ()),
        )

    def close(self) -> None:
        """Close all streams and the connection to the engine; leave the containers as they are."""
        for sandbox in self._open.values():
            sandbox.close()
        self._open.clear()
        self._fifos.close()
        self._guard.close()
        self._engine.close()

    async def _undo(self, creating: asyncio.Future[str]) -> None:
        with suppress(ServiceError):
            await self.remove(await creating)

    async def _healthy(self, sandbox: BashSandbox, spec: ContainerSpec) -> None:
        if spec.health is None:
            return
        try:
            await until_healthy(sandbox, spec.health, within_s=self._config.services.start_s)
        except BaseException:
            sandbox.close()
            with suppress(ServiceError):  # otherwise the reaper removes it
                await asyncio.shield(self.remove(sandbox.container_id))
            raise

    async def disk_usage(self, container_id: str = "") -> dict[str, int]:
        """Bytes in the writable layer by container id: of every container of this node, or of the one given.

        Those of its services count too, and each file or folder counts ENTRY_BYTES besides, if they can be counted. The
        engine walks each layer: some 0.1 s for a container with ten thousand files. Call it when the engine is idle.
        """
        group = self._groups.get(container_id, "")
        which = {"id": container_id} if container_id else {"label": f"{NODE}={self._config.node}"}
        found: list[dict[str, Any]] = await self._engine.call(
            lambda api: api.containers(all=True, size=True, filters={"label": f"{GROUP}={group}"} if group else which),
            timeout_s=_DISK_USAGE_S,
        )
        counts = await self._layer_files.of([one["Id"] for one in found], timeout_s=_COUNT_S)
        return layer_bytes(found, counts)

    def _sandbox(self, container_id: str, token: str, role: Role, folder: Path | None) -> BashSandbox:
        own = folder if role is Role.SESSION else None
        container = self._container_of(self._engine, self._guard, container_id, own)
        return BashSandbox(
            container,
            token,
            shared_channels=role is Role.SESSION,
            login_cache=self._config.login_cache,
            fifos=Fifos(folder) if folder else None,
        )

    async def _created(self, spec: ContainerSpec, additions: RuntimeAdditions, folder: Path | None) -> str:
        """Create the container; returns its id."""
        container_id = await self._created_in_one_network(spec, additions, folder)
        if additions.group_endpoint is not None and spec.network != "none":
            await self._engine.call(lambda api: api.connect_container_to_network(container_id, self._engine.network))
        return container_id

    async def _created_in_one_network(
        self, spec: ContainerSpec, additions: RuntimeAdditions, folder: Path | None
    ) -> str:
        try:
            return await self._engine.call(lambda api: create(api, spec, additions, folder))
        except ServiceError as e:
            if folder is None or _NO_SOURCE not in e.detail:
                raise
            self._fifos.give_up(f"the engine's host has no folder {folder.parent}; see SANDBOX_FIFO_DIR")
            return await self._engine.call(lambda api: create(api, spec, additions, None))
