"""Attempts at a grading, each in a fresh container: the patch, then the tests; repeated after a failure of ours."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from sandbox_server import telemetry
from sandbox_server.catalogue.diff import created_paths
from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable, SandboxDiskFull, ServiceError
from sandbox_server.grading.altering import RunSlots
from sandbox_server.grading.base import Grader, TestRun
from sandbox_server.grading.carrying import place
from sandbox_server.grading.containers import Bounds, Containers, GradingContainer
from sandbox_server.grading.control import Control, GradingInterrupted, attribute_failures, is_suspect
from sandbox_server.grading.disk import DiskExceeded
from sandbox_server.grading.memory import MemoryWatch
from sandbox_server.grading.patching import ApplyResult, apply_patch
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.verdicts import VerdictName

log = telemetry.logger(__name__)

_KILLED = 137  # 128 + SIGKILL


@dataclass(frozen=True, slots=True)
class Retries:
    """The policy of retries after an attempt that broke off and was not the patch's fault."""

    attempts: int = 3
    """Attempts in all."""
    pause_s: float = 1.0
    """Before the second attempt; before the third twice as long, and so on."""


@dataclass(slots=True)
class Attempt:
    """The result of one fresh container."""

    run: TestRun
    tier: str
    image_digest: str
    timings_s: dict[str, float]
    number: int = 1
    blamed: bool = False
    """A control has shown that the patch is the reason for missing results."""


@dataclass(frozen=True, slots=True)
class PatchedContainer:
    """A container in which the patch is applied and the tests' files are placed."""

    container: GradingContainer
    tier: str = ""
    """The command that applied the patch."""
    failure: TestRun | None = None
    """The result if the attempt ends here."""
    timings_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run differs from a plain grading."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """Path -> content that replaces the tests' own files."""
    focus: str = ""
    """pytest options."""
    slots: RunSlots | None = None
    slack: float = 1.0
    """How many times their limit the tests may take."""
    most_s: float = math.inf
    """How long they may take in any case."""


class Attempts:
    """Runs an instance's tests over a patch in fresh containers."""

    def __init__(
        self,
        containers: Containers,
        graders: Mapping[str, Grader],
        bounds: Bounds,
        retries: Retries,
        *,
        control_kept_s: float,
    ) -> None:
        """`graders`: by grader kind. A successful control run is trusted for `control_kept_s` seconds."""
        self._containers = containers
        self._graders = graders
        self._bounds = bounds
        self._retries = retries
        self._control = Control(self._run_once, kept_s=control_kept_s)

    async def _run_once(self, instance: TaskInstance, patch: bytes) -> TestRun:
        return (await self._attempt(instance, patch, "")).run

    async def run(
        self,
        instance: TaskInstance,
        patch: bytes,
        sid: str = "",
        options: RunOptions | None = None,
    ) -> Attempt:
        """Attempt on fresh containers until one gives a result, or the control shows that the patch prevents one.

        Raises:
            ServiceError: from the last attempt. Exception: a defect of ours that the patch did not cause.

        """
        interruptions: list[GradingInterrupted] = []
        began = time.monotonic()
        number = 0
        while number < self._retries.attempts or is_suspect(interruptions, number):
            number += 1
            if number > 1:
                await asyncio.sleep(self._retries.pause_s * (number - 1))
            failure: Exception
            try:
                attempt = await self._attempt(instance, patch, sid, options)
            except GradingInterrupted as interruption:
                failure = interruption.error
                self._note(instance, sid, number, failure)
                interruptions.append(interruption)
                if cause := await self._control.blames(instance, interruptions, began=began):
                    run = TestRun(VerdictName.NO_RESULTS, cause, 0, 0)
                    return Attempt(run, "", interruption.image, {}, number, blamed=True)
            except ServiceError as error:
                failure = error
                self._note(instance, sid, number, error)
            else:
                attempt.number = number
                return attempt
        raise failure

    def _note(self, instance: TaskInstance, sid: str, number: int, error: Exception) -> None:
        code, detail = (error.code, error.detail) if isinstance(error, ServiceError) else ("defect", repr(error))
        telemetry.INFRA_ERRORS.labels(code).inc()
        log.warning(
            "grading attempt failed",
            instance_id=instance.instance_id,
            sid=sid,
            attempt=number,
            code=code,
            detail=detail,
            exc_info=error if code == "defect" else None,
        )

    async def _attempt(
        self,
        instance: TaskInstance,
        patch: bytes,
        sid: str,
        options: RunOptions | None = None,
    ) -> Attempt:
        options = options or RunOptions()
        async with (
            self.patched(instance, patch, sid, options) as patched,
            options.slots or nullcontext(),
            self._blaming(patched.container, instance, patch),
        ):
            run = patched.failure or await self.run_tests(
                instance, patched.container.sandbox, options.files, slack=options.slack, most_s=options.most_s
            )
        return Attempt(run, patched.tier, patched.container.image_digest, {**patched.timings_s, **run.timings_s})

    @asynccontextmanager
    async def patched(
        self, instance: TaskInstance, patch: bytes, sid: str = "", options: RunOptions | None = None
    ) -> AsyncIterator[PatchedContainer]:
        """A container with `patch` applied, which is removed after the block. Raises ServiceError."""
        patched = await self._patched(instance, patch, sid, options)
        try:
            yield patched
        finally:
            self._containers.remove(patched.container.sandbox)

    async def _patched(
        self, instance: TaskInstance, patch: bytes, sid: str, options: RunOptions | None
    ) -> PatchedContainer:
        """Apply the patch in a container: the one created ahead if it exists and is usable, else a new one."""
        began = time.monotonic()
        if container := await self._containers.take(instance, sid):
            try:
                return await self._patch_in(
                    container, instance, patch, {"create": time.monotonic() - began, "setup": 0.0}
                )
            except ServiceError as error:  # it may have died while parked, which must not count as an attempt
                log.warning(
                    "the grading container created ahead is unusable; creating another",
                    sid=sid,
                    code=error.code,
                    detail=error.detail,
                )
        # the container may wait until another run's tests end, and the tests of both may take `slack` times the limit
        lasts_s = self._bounds.tests_of(instance) * (2 * options.slack - 1) if options and options.slots else 0.0
        env = {"PYTEST_ADDOPTS": options.focus} if options and options.focus else {}
        container = await self._containers.make(instance, sid, lasts_s=lasts_s, env=env)
        return await self._patch_in(
            container, instance, patch, {"create": container.create_s, "setup": container.setup_s}
        )

    async def _patch_in(
        self, container: GradingContainer, instance: TaskInstance, patch: bytes, timings_s: dict[str, float]
    ) -> PatchedContainer:
        assert instance.grader is not None  # instances without a grader are answered before this
        began = time.monotonic()
        # The test files overwrite whatever the patch left at their paths: a file there would make `git apply` refuse
        # the whole test patch, and a correct fix would be graded by the old tests.
        stray = created_paths(instance.test_patch.encode()) | instance.files.keys()
        if isinstance(instance.grader, SwebenchGrader):
            stray |= set(instance.grader.new_test_files)
        try:
            await self._graders[instance.grader.kind].prepare(instance)
            async with self._blaming(container, instance, patch):
                applied = await self._apply(container.sandbox, instance, patch, stray)
            if applied.no_room:
                raise SandboxDiskFull(f"no room for the patch in the grading container: {applied.said[-300:]}")
            failure = None
            if applied.refused:
                cause = f"the patch does not apply to the clean tree: {applied.said.strip().rpartition(chr(10))[2]}"
                failure = TestRun(VerdictName.PATCH_FAILED, cause, 0, 0, log_tail=applied.said)
            elif applied.unplaced:
                # The patch put a file, or a bad link, where the tests need a folder.
                cause = f"the tests' file {applied.unplaced} cannot be placed in the patched tree: {applied.said}"
                failure = TestRun(VerdictName.NO_RESULTS, cause, 0, 0)
            if failure is not None:
                await self._containers.check_limits(instance, container.sandbox)
        except BaseException:
            self._containers.remove(container.sandbox)
            raise
        return PatchedContainer(container, applied.tier, failure, {**timings_s, "apply": time.monotonic() - began})

    async def _apply(self, sandbox: Sandbox, instance: TaskInstance, patch: bytes, stray: Iterable[str]) -> ApplyResult:
        timeout_s = self._bounds.apply_s
        if not instance.carried:
            workdir = instance.sandbox.workdir
            return await apply_patch(sandbox, patch, instance.files, clear=stray, workdir=workdir, timeout_s=timeout_s)
        return await place(sandbox, patch, instance.placed, timeout_s=timeout_s) if patch else ApplyResult("", "")

    def _blaming(
        self, container: GradingContainer, instance: TaskInstance, patch: bytes
    ) -> AbstractAsyncContextManager[None]:
        return attribute_failures(
            self._containers.inspector,
            container.sandbox.container_id,
            image=container.image_digest,
            patch=patch,
            limits=self._containers.limits_of(instance),
        )

    async def run_tests(
        self,
        instance: TaskInstance,
        sandbox: Sandbox,
        altered: Mapping[str, bytes] | None = None,
        *,
        slack: float = 1.0,
        most_s: float = math.inf,
    ) -> TestRun:
        """Run the instance's tests in a patched container, with the files in `altered` replaced.

        They may take `slack` times their limit, but at most `most_s` seconds.

        Raises:
            EngineUnavailable: the tests were not stopped at their limit. InfrastructureError: they failed, and the host
            lacked memory, or somebody lowered the container's limits. ServiceError: from the grader.

        """
        assert instance.grader is not None  # instances without a grader are answered before this
        timeout_s = min(self._bounds.tests_of(instance) * slack, most_s)
        memory = MemoryWatch(self._containers.inspector, sandbox.container_id)
        try:
            # The grader itself stops the tests at their limit; this deadline is for an engine that does not answer.
            bounded = self._containers.disk_bounded(instance, sandbox)
            async with asyncio.timeout(timeout_s + self._bounds.judge_s), bounded:
                run = await self._graders[instance.grader.kind].run(
                    instance,
                    sandbox,
                    timeout_s=timeout_s,
                    altered=altered,
                    clean=partial(self._containers.clean, instance),
                )
                if run.name is not VerdictName.RESOLVED:
                    await self._containers.check_limits(instance, sandbox)
                killed = run.name is VerdictName.UNRESOLVED and run.exit_code == _KILLED
                if (killed or run.name is VerdictName.NO_RESULTS) and await memory.killed_at_limit():
                    cause = f"the tests ran out of the container's memory; {run.cause}"
                    return replace(run, name=VerdictName.NO_RESULTS, cause=cause, f2p_count=0, p2p_count=0)
                if run.name is VerdictName.UNRESOLVED:
                    await memory.check_host()  # a process of the tests may have been killed, but not their runner
                if run.name is not VerdictName.RESOLVED:
                    self._containers.check_disk()
                return run
        except DiskExceeded as error:
            return TestRun(VerdictName.NO_RESULTS, str(error), 0, 0)
        except TimeoutError:
            raise EngineUnavailable(f"the tests were not stopped at their limit of {timeout_s:g} s") from None
