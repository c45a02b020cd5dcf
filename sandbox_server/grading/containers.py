"""Grading containers: each grading gets a fresh one, which is removed after it.

A container can be created ahead, before the patch exists: neither its creation nor its setup commands depend on the
patch. If the session ends without a grading, the container is removed unused. This is only an optimisation: a grading
without such a container creates its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import HarborGrader, TaskInstance
from sandbox_server.errors import CapacityError, EngineUnavailable, GraderBroken, InfrastructureError, ServiceError
from sandbox_server.grading.disk import disk_bounded
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Runtime, Sandbox
from sandbox_server.sandbox.egress import allowing
from sandbox_server.sandbox.faults import Faults
from sandbox_server.sandbox.inspector import ContainerInspector
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

KEPT_S = 300.0
"""Seconds until a container created ahead is removed if no grading takes it. A session's end takes some 220 s at most
(a command and a capture); only gradings with many others ahead of them wait longer than this."""

_RETRY_S = 1.0  # between two attempts to remove a container
_COMMANDS = 2  # commands of a grading: one to apply and place, one for the tests


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on each stage of one attempt, in seconds."""

    create_s: float = 600.0
    """Includes pulling the image."""
    setup_s: float = 300.0
    """For each setup command."""
    apply_s: float = 120.0
    """Includes placing the test files."""
    tests_s: float = 1800.0
    """Upper limit on `eval_timeout_s` of an instance."""
    judge_s: float = 150.0
    """After the tests: killing leftover processes, parsing the log (may include a start of the library's worker)."""
    remove_s: float = 60.0

    def tests_of(self, instance: TaskInstance) -> float:
        """Limit on the tests of `instance`."""
        return min(instance.eval_timeout_s, self.tests_s)

    def of_attempt(self, instance: TaskInstance) -> float:
        """Maximum duration of one attempt in seconds."""
        tests_s = self.tests_of(instance)
        return self.create_s + self.setup_s + self.apply_s + tests_s + self.judge_s + self.remove_s


@dataclass(frozen=True, slots=True)
class GradingContainer:
    """A container ready for a patch, its image, and how long it took to create and set up."""

    sandbox: Sandbox
    image_digest: str
    create_s: float
    setup_s: float


@dataclass(slots=True)
class _Expected:
    instance: TaskInstance
    making: asyncio.Task[GradingContainer]
    expiry: asyncio.TimerHandle
    begun: bool = False


@dataclass(frozen=True, slots=True)
class PrestartLimits:
    """Limits on containers that are created before they are needed."""

    most: int = 0
    """Number of containers created and not yet taken."""
    boots: int = 1
    """Number of containers being created at a time."""


@dataclass(frozen=True, slots=True)
class SealedImageSource:
    """How sealed images are made: setup commands run, and history after the task removed."""

    seal: Callable[[TaskInstance], Awaitable[ImageInfo]]
    """Gives the instance's sealed image, and builds it if it is not there."""
    at_once: int = 1
    """Images that `Containers.make_image` builds at a time."""
    with_services: Callable[[ContainerSpec, TaskInstance], Awaitable[ContainerSpec]] | None = None
    """Adds what stands beside each sandbox of the instance, and its health check; None: instances have neither."""


class Containers:
    """Creates grading containers, hands each out once, and removes them in the background."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        limits: Limits,
        network: str = "none",
        cpu_shares: int = 0,
        bounds: Bounds | None = None,
        ahead: PrestartLimits | None = None,
        faults: Faults | None = None,
        sealing: SealedImageSource | None = None,
    ) -> None:
        """`limits` apply where the instance sets none; `network` is the containers' network.

        While there are `faults`, no container is created. Without `sealing`, containers are created from one of the
        instance's images, and the setup commands run in each of them.
        """
        ahead = ahead or PrestartLimits()
        self._runtime = runtime
        self._limits = limits
        self.network = network
        self._cpu_shares = cpu_shares
        self._bounds = bounds or Bounds()
        self._most_ahead = ahead.most
        self._faults = faults or Faults()
        self._sealed = sealing.seal if sealing else None
        self._add_services = sealing.with_services if sealing else None
        self._sealing = asyncio.Semaphore(sealing.at_once if sealing else 1)
        self._known = set[str]()
        """Instances whose sealed image was built or found once; if it has been removed since, a grading rebuilds it."""
        self._boots = asyncio.Semaphore(ahead.boots)
        self._expected: dict[str, _Expected] = {}
        self._leaving = TaskSet("grading containers")
        self._closed = False

    @property
    def inspector(self) -> ContainerInspector:
        """The engine's own view of the containers."""
        return self._runtime.inspector

    @property
    def waiting(self) -> int:
        """Containers created ahead and not yet taken."""
        return len(self._expected)

    async def image_digest(self, instance: TaskInstance) -> str:
        """Digest of the instance's image; "" if it is not on the engine (nothing is pulled)."""
        try:
            for name in instance.sandbox.images:
                if found := await self._runtime.images.find(name):
                    return found.digest
        except ServiceError as error:  # a later use of the image reports the error
            log.warning("task image not looked up", instance_id=instance.instance_id, error=error.detail)
        return ""

    async def make_image(self, instance: TaskInstance) -> None:
        """Build the sealed image ahead, a bounded number at a time. Errors are ignored: `make` will meet them."""
        key = f"{instance.instance_id}:{instance.row_sha256}"
        if self._sealed is None or key in self._known:
            return
        with suppress(ServiceError, TimeoutError):
            async with self._sealing, asyncio.timeout(self._bounds.create_s):
                await self._sealed(instance)
            self._known.add(key)

    def limits_of(self, instance: TaskInstance) -> Limits:
        """Resource limits of a container of `instance`."""
        own = {name: getattr(instance.sandbox, name) for name in ("memory_mb", "cpus", "pids", "disk_mb")}
        return replace(self._limits, **{name: value for name, value in own.items() if value is not None})

    async def make(
        self, instance: TaskInstance, sid: str, *, lasts_s: float = 0.0, env: Mapping[str, str] | None = None
    ) -> GradingContainer:
        """Create a fresh container and run its setup commands; it may stay up to `lasts_s` before its grading begins.

        `env` is added to the instance's own; it is not part of the sealed image. After an error or a cancellation no
        container is left behind.

        Raises:
            ImageUnavailable, EngineUnavailable, GraderBroken: a setup command failed. CapacityError: the engine does
                not answer, or its disk is nearly full.

        """
        self._faults.check()
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._bounds.create_s):
                image = await (self._sealed(instance) if self._sealed else self._resolved(instance))
                spec = self._spec(instance, image.name, sid, lasts_s, env or {})
                sandbox = await self._runtime.create(await self._with_services(spec, instance))
        except TimeoutError:
            raise EngineUnavailable(f"no grading container within {self._bounds.create_s:.0f} s") from None
        created = time.monotonic()
        try:
            if self._sealed is None:
                await self._set_up(instance, sandbox)
            await sandbox.stand_by(_COMMANDS)
        except BaseException:
            self.remove(sandbox)
            raise
        return GradingContainer(sandbox, image.digest, created - began, time.monotonic() - created)

    @asynccontextmanager
    async def clean(self, instance: TaskInstance, sid: str = "") -> AsyncIterator[Sandbox]:
        """A fresh container for the block, removed after it. Raises as `make`."""
        container = await self.make(instance, sid)
        try:
            yield container.sandbox
        finally:
            self.remove(container.sandbox)

    def check_disk(self) -> None:
        """Raise CapacityError if the engine's disk is nearly full: tests may have failed for lack of room."""
        if text := self._faults.present.get("disk"):
            raise CapacityError(text, reason="disk")

    async def check_limits(self, instance: TaskInstance, sandbox: Sandbox) -> None:
        """Raise InfrastructureError if somebody on the host has lowered the container's limits (`docker update`).

        The tests may then have failed because of the lower limits. They are read from the engine, so a patch cannot
        fake them to get a mask.
        """
        if lowered := (await self.inspector.inspect(sandbox.container_id)).lowered_limits(self.limits_of(instance)):
            raise InfrastructureError(lowered)

    def disk_bounded(self, instance: TaskInstance, sandbox: Sandbox) -> AbstractAsyncContextManager[None]:
        """Enforce the instance's disk limit during the block; see `grading.disk`."""
        limit_mb = instance.sandbox.disk_mb or self._limits.disk_mb
        return disk_bounded(self._runtime, sandbox.container_id, limit_mb)

    def expect(self, instance: TaskInstance, sid: str) -> None:
        """Start creating a container for the coming grading of `sid`, unless enough are waiting already."""
        if sid in self._expected or len(self._expected) >= self._most_ahead or self._closed:
            return
        making = asyncio.create_task(self._make_ahead(instance, sid), name=f"grade-ahead-{sid}")
        expiry = asyncio.get_running_loop().call_later(KEPT_S, self.forget, sid)
        self._expected[sid] = _Expected(instance, making, expiry)

    async def take(self, instance: TaskInstance, sid: str) -> GradingContainer | None:
        """The container created for `sid`, waiting for it if its creation has begun; None if there is none."""
        expected = self._expected.get(sid)
        if expected is None:
            return None
        # A creation that has not begun would be slower than the caller's own; the instance may have been reimported.
        if not expected.begun or expected.instance != instance:
            self.forget(sid)
            return None
        await asyncio.wait({expected.making})  # if cancelled here, `forget` removes it
        if self._expected.pop(sid, None) is not expected:
            return None  # forgotten meanwhile
        expected.expiry.cancel()
        try:
            return expected.making.result()
        except ServiceError as error:
            log.warning("creating a grading container ahead failed; creating another", sid=sid, error=error.detail)
        except Exception:
            log.exception("creating a grading container ahead failed; creating another", sid=sid)
        return None

    def forget(self, sid: str) -> None:
        """Remove the container created for `sid`; no effect if there is none or it was taken."""
        if expected := self._expected.pop(sid, None):
            expected.expiry.cancel()
            self._later(self._discard(expected.making))

    def remove(self, sandbox: Sandbox) -> None:
        """Kill and remove the container in the background; the reaper removes it if that fails."""
        self._later(self._remove(sandbox.container_id))

    async def close(self) -> None:
        """Create no more, and remove all that wait; what is not gone in time is left to the reaper."""
        self._closed = True
        for sid in list(self._expected):
            self.forget(sid)
        await self._leaving.settle(self._bounds.remove_s)  # a container still being created adds its own removal here

    async def _make_ahead(self, instance: TaskInstance, sid: str) -> GradingContainer:
        async with self._boots:
            if expected := self._expected.get(sid):
                expected.begun = True
            return await self.make(instance, sid, lasts_s=KEPT_S)

    async def _resolved(self, instance: TaskInstance) -> ImageInfo:
        return await self._runtime.images.resolve(instance.sandbox.images)

    async def _set_up(self, instance: TaskInstance, sandbox: Sandbox) -> None:
        for command in instance.sandbox.setup_commands:
            done = await sandbox.exec(
                ["bash", "-c", command],
                timeout_s=self._bounds.setup_s,
                cwd=instance.sandbox.workdir,
                user="root",
                merge_streams=True,
            )
            if done.exit_code != 0:
                raise GraderBroken(f"setup command failed ({done.exit_code}): {command}: {done.stdout.text()[-300:]}")

    def _spec(
        self, instance: TaskInstance, image: str, sid: str, lasts_s: float, env: Mapping[str, str]
    ) -> ContainerSpec:
        lasts = timedelta(seconds=lasts_s + self._bounds.of_attempt(instance))
        return ContainerSpec(
            image=image,
            role=Role.GRADE,
            sid=sid,
            deadline=clock.today() + lasts,
            workdir=instance.sandbox.workdir,
            env={**instance.sandbox.env, **env},
            network=self._network_of(instance),
            egress=allowing(instance.grader.allowed) if isinstance(instance.grader, HarborGrader) else None,
            limits=self.limits_of(instance),
            with_shell=False,
            cpu_shares=self._cpu_shares,
        )

    async def _with_services(self, spec: ContainerSpec, instance: TaskInstance) -> ContainerSpec:
        """Add fresh services, if the grader wants them; an agent cannot have changed these."""
        wanted = isinstance(instance.grader, HarborGrader) and instance.grader.services
        return await self._add_services(spec, instance) if wanted and self._add_services else spec

    def _network_of(self, instance: TaskInstance) -> str:
        asked = instance.grader.network if isinstance(instance.grader, HarborGrader) else self.network
        return "none" if asked == "none" else self.network

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._leaving.start(work)

    async def _discard(self, making: asyncio.Task[GradingContainer]) -> None:
        making.cancel()
        await asyncio.wait({making})
        if not making.cancelled() and making.exception() is None:
            await self._remove(making.result().sandbox.container_id)

    async def _remove(self, container_id: str) -> None:
        try:
            async with asyncio.timeout(self._bounds.remove_s):
                await self._removed(container_id)
        except (ServiceError, TimeoutError):
            log.warning("grading container left to the reaper", container_id=container_id, exc_info=True)

    async def _removed(self, container_id: str) -> None:
        """Retry until it is gone: a busy engine gives up a kill after 10 s and leaves the container running."""
        while True:
            try:
                return await self._runtime.remove(container_id)
            except EngineUnavailable:
                if self._closed:
                    raise  # the server is stopping and does not wait for the engine
            await asyncio.sleep(_RETRY_S)
