"""Grading containers: made fresh for one grading each, some of them before their patch is there, gone after it.

Ahead of time a container is only created and set up, which no patch has a part in; what a session ends in may still
make it superfluous, then it is removed unused. Nothing relies on it: a grading that finds none makes its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import EngineUnavailable, GraderBroken, ServiceError
from sandbox_server.grading.disk import disk_bounded
from sandbox_server.sandbox.base import ContainerSpec, ImageInfo, Limits, Role, Runtime, Sandbox
from sandbox_server.sandbox.faults import Faults
from sandbox_server.sandbox.outside import Outside
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

KEPT_S = 300.0
"""A container made ahead that nobody takes is removed after this: an end takes at most a command and a capture, some
220 s, and longer than that only gradings wait that many others are ahead of."""

_COMMANDS = 2  # that a grading runs: one to apply and place, one for the tests


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds that each stage of one attempt may take."""

    create_s: float = 600.0
    """A pull of the image included."""
    setup_s: float = 300.0
    """Each setup command."""
    apply_s: float = 120.0
    """The placing of files included."""
    tests_s: float = 1800.0
    """Upper bound on what an instance asks for."""
    judge_s: float = 150.0
    """For what follows the tests: killing what is left, parsing (with a start of the library's worker)."""
    remove_s: float = 60.0

    def tests_of(self, instance: TaskInstance) -> float:
        """How long the tests of `instance` may run."""
        return min(instance.eval_timeout_s, self.tests_s)

    def of_attempt(self, instance: TaskInstance) -> float:
        """The longest one attempt can last."""
        tests_s = self.tests_of(instance)
        return self.create_s + self.setup_s + self.apply_s + tests_s + self.judge_s + self.remove_s


@dataclass(frozen=True, slots=True)
class Box:
    """A container ready for a patch."""

    sandbox: Sandbox
    image_digest: str
    create_s: float
    setup_s: float


@dataclass(slots=True)
class _Expected:
    instance: TaskInstance
    making: asyncio.Task[Box]
    expiry: asyncio.TimerHandle
    begun: bool = False


class Containers:
    """Makes them, hands each out once, removes them in the background."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        limits: Limits,
        network: str = "none",
        cpu_shares: int = 0,
        bounds: Bounds | None = None,
        ahead: int = 0,
        ahead_boots: int = 1,
        faults: Faults | None = None,
        sealed: Callable[[TaskInstance], Awaitable[ImageInfo]] | None = None,
        seals: int = 1,
    ) -> None:
        """`limits` where the instance names none of its own; at most `ahead` wait at a time, `ahead_boots` begin.

        None is made while there are `faults`. `sealed(instance)` is the image that its containers are made of, set up
        and without what is later than the task; without it one of the instance's images, set up in each container. So
        many `seals` are made at a time before their gradings begin.
        """
        self._runtime = runtime
        self._limits = limits
        self.network = network
        self._cpu_shares = cpu_shares
        self._bounds = bounds or Bounds()
        self._ahead = ahead
        self._faults = faults or Faults()
        self._sealed = sealed
        self._sealing = asyncio.Semaphore(seals)
        self._known = set[str]()
        """Instances whose sealed image was there once; one that is gone since is made by the grading itself."""
        self._boots = asyncio.Semaphore(ahead_boots)
        self._expected: dict[str, _Expected] = {}
        self._leaving = TaskSet("grading containers")
        self._closed = False

    @property
    def outside(self) -> Outside:
        """What the engine itself says of them."""
        return self._runtime.outside

    @property
    def waiting(self) -> int:
        """How many are made ahead and not taken."""
        return len(self._expected)

    async def image_digest(self, instance: TaskInstance) -> str:
        """Of the image that a container of `instance` is made of; "": it is not on the engine, which pulls nothing."""
        try:
            for name in instance.sandbox.images:
                if found := await self._runtime.find_image(name):
                    return found.digest
        except ServiceError as error:  # whoever needs the image itself meets it again
            log.warning("task image not looked up", instance_id=instance.instance_id, error=error.detail)
        return ""

    async def make_image(self, instance: TaskInstance) -> None:
        """Have the image that its containers are made of sealed, so many at a time; what fails, `make` meets again."""
        key = f"{instance.instance_id}:{instance.row_sha256}"
        if self._sealed is None or key in self._known:
            return
        with suppress(ServiceError, TimeoutError):
            async with self._sealing, asyncio.timeout(self._bounds.create_s):
                await self._sealed(instance)
            self._known.add(key)

    def limits_of(self, instance: TaskInstance) -> Limits:
        """Of a container of `instance`."""
        own = {name: getattr(instance.sandbox, name) for name in ("memory_mb", "cpus", "pids", "disk_mb")}
        return replace(self._limits, **{name: value for name, value in own.items() if value is not None})

    async def make(
        self, instance: TaskInstance, sid: str, *, lasts_s: float = 0.0, env: Mapping[str, str] | None = None
    ) -> Box:
        """A fresh container, its setup commands run; it may wait `lasts_s` for its grading.

        `env` is beside the instance's own, and no part of the sealed image.

        Raises:
            ImageUnavailable, EngineUnavailable, GraderBroken: a setup command failed. CapacityError: the engine does
                not answer, or its disk is nearly full. Nothing is left behind, nor when the caller is cancelled.

        """
        self._faults.check()
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._bounds.create_s):
                image = await (self._sealed(instance) if self._sealed else self._resolved(instance))
                sandbox = await self._runtime.create(self._spec(instance, image.name, sid, lasts_s, env or {}))
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
        return Box(sandbox, image.digest, created - began, time.monotonic() - created)

    @asynccontextmanager
    async def clean(self, instance: TaskInstance, sid: str = "") -> AsyncIterator[Sandbox]:
        """A fresh container for the block; removed behind it. Raises as `make`."""
        box = await self.make(instance, sid)
        try:
            yield box.sandbox
        finally:
            self.remove(box.sandbox)

    def disk_bounded(self, instance: TaskInstance, sandbox: Sandbox) -> AbstractAsyncContextManager[None]:
        """Hold it to what the instance may write, for the block; see `grading.disk`."""
        limit_mb = instance.sandbox.disk_mb or self._limits.disk_mb
        return disk_bounded(self._runtime, sandbox.container_id, limit_mb)

    def expect(self, instance: TaskInstance, sid: str) -> None:
        """Make one for the grading of `sid`, which comes soon; nothing when enough wait already."""
        if sid in self._expected or len(self._expected) >= self._ahead or self._closed:
            return
        making = asyncio.create_task(self._make_ahead(instance, sid), name=f"grade-ahead-{sid}")
        expiry = asyncio.get_running_loop().call_later(KEPT_S, self.forget, sid)
        self._expected[sid] = _Expected(instance, making, expiry)

    async def take(self, instance: TaskInstance, sid: str) -> Box | None:
        """The one made for `sid`, waited for where it is under way; None: there is none, make your own."""
        expected = self._expected.get(sid)
        if expected is None:
            return None
        # one that has not got its turn would come later than the caller's own; and instances may be imported again
        if not expected.begun or expected.instance != instance:
            self.forget(sid)
            return None
        await asyncio.wait({expected.making})  # cancelled here, it stays for `forget`
        if self._expected.pop(sid, None) is not expected:
            return None  # forgotten meanwhile
        expected.expiry.cancel()
        try:
            return expected.making.result()
        except ServiceError as error:
            log.warning("no grading container ahead of time; another is made", sid=sid, error=error.detail)
        except Exception:
            log.exception("no grading container ahead of time; another is made", sid=sid)
        return None

    def forget(self, sid: str) -> None:
        """The container made for `sid` is not needed: it is removed. None made, or taken already: nothing."""
        if expected := self._expected.pop(sid, None):
            expected.expiry.cancel()
            self._later(self._discard(expected.making))

    def remove(self, sandbox: Sandbox) -> None:
        """Kill and remove it, in the background; what fails is left to the reaper."""
        self._later(self._remove(sandbox.container_id))

    async def close(self) -> None:
        """Make no more; all that wait are gone on return, and those being removed, or are left to the reaper."""
        self._closed = True
        for sid in list(self._expected):
            self.forget(sid)
        await self._leaving.settle(self._bounds.remove_s)  # one that was being made adds its own end

    async def _make_ahead(self, instance: TaskInstance, sid: str) -> Box:
        async with self._boots:
            if expected := self._expected.get(sid):
                expected.begun = True
            return await self.make(instance, sid, lasts_s=KEPT_S)

    async def _resolved(self, instance: TaskInstance) -> ImageInfo:
        return await self._runtime.resolve_image(instance.sandbox.images)

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
            network=self.network,
            limits=self.limits_of(instance),
            with_shell=False,
            cpu_shares=self._cpu_shares,
        )

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        self._leaving.start(work)

    async def _discard(self, making: asyncio.Task[Box]) -> None:
        making.cancel()
        await asyncio.wait({making})
        if not making.cancelled() and making.exception() is None:
            await self._remove(making.result().sandbox.container_id)

    async def _remove(self, container_id: str) -> None:
        try:
            async with asyncio.timeout(self._bounds.remove_s):
                await self._runtime.remove(container_id)
        except (ServiceError, TimeoutError):
            log.warning("grading container left to the reaper", container_id=container_id, exc_info=True)
