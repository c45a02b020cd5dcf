"""One grading: a fresh container, the patch, the tests, a verdict; docs/grading.md has the table."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial

from sandbox_server import telemetry
from sandbox_server.catalogue.diff import created_paths
from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable, GraderBroken, ServiceError
from sandbox_server.grading.altering import Room
from sandbox_server.grading.assay import Finding, without
from sandbox_server.grading.assays import Assays
from sandbox_server.grading.attempt import Altered, Attempt, Laid
from sandbox_server.grading.base import Aside, BaselineSource, Grader, GradeRequest, TestRun
from sandbox_server.grading.calibration import Calibration
from sandbox_server.grading.confirming import Confirming
from sandbox_server.grading.containers import Bounds, Box, Containers
from sandbox_server.grading.control import BrokeOff, Control, blaming, is_suspect
from sandbox_server.grading.disk import DiskExceeded
from sandbox_server.grading.guard import RunnerFilePolicy, screen
from sandbox_server.grading.ladder import apply_patch
from sandbox_server.grading.memory import MemoryWatch
from sandbox_server.grading.reading import GitReading
from sandbox_server.grading.supervised import read_texts
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.records import Verdict, VerdictName
from sandbox_server.sandbox.base import Sandbox

log = telemetry.logger(__name__)

_KILLED = 137  # 128 + SIGKILL


class Grading:
    """Grades patches, each on a container of its own that is gone when the verdict is there."""

    def __init__(
        self,
        containers: Containers,
        graders: Mapping[str, Grader],
        baseline: BaselineSource,
        *,
        runner_files: RunnerFilePolicy = "strip",
        attempts: int = 3,
        bounds: Bounds | None = None,
        retry_pause_s: float = 1.0,
        assays: Assays | None = None,
        control_kept_s: float = 300.0,
    ) -> None:
        """`graders` by the kind of instance they take; a good control counts for `control_kept_s`."""
        self._containers = containers
        self._graders = graders
        self._runner_files = runner_files
        self._attempts = attempts
        self._bounds = bounds or Bounds()
        self._retry_pause_s = retry_pause_s
        self._calibration = Calibration(baseline, self.run_unpatched)
        self._assays = assays
        self.confirming: Confirming | None = None
        """Runs a patch that earns something again; None: nothing does."""
        self._control = Control(self._run_unpatched_once, kept_s=control_kept_s)
        self._reading = GitReading()

    async def close(self) -> None:
        """End what the graders started; containers made ahead are removed."""
        await self._containers.close()
        self._reading.close()
        for grader in self._graders.values():
            await grader.close()

    def versions(self, instance: TaskInstance) -> Mapping[str, str]:
        """Library -> version that would judge `instance`."""
        return self._graders[instance.grader.kind].versions if instance.grader else {}

    async def facts(self, instance: TaskInstance) -> Mapping[str, object]:
        """What a verdict on `instance` depends on beside it and the patch: the image, who judges, the settings.

        "" stands for an image that is not here yet.
        """
        limits = self._containers.limits_of(instance)
        image = await self._containers.image_digest(instance)
        known = await self.finding(instance, image)
        return {
            "image": image,
            "quarantined": list(known.quarantined),
            "stubs": list(known.stubs),
            "versions": dict(self.versions(instance)),
            "runner_files": self._runner_files,
            "confirm": self.confirming.mode if self.confirming else "off",
            "network": self._containers.network,
            "tests_s": self._bounds.tests_of(instance),
            "limits": [limits.memory_mb, limits.cpus, limits.pids, limits.disk_mb],
        }

    def expect(self, instance: TaskInstance, sid: str) -> None:
        """A patch of `sid` comes soon: its container is made meanwhile, where there is room for one."""
        if instance.grader is not None:
            self._containers.expect(instance, sid)

    def forget(self, sid: str) -> None:
        """No container is needed for `sid`."""
        self._containers.forget(sid)

    async def prepare(self, instance: TaskInstance) -> None:
        """Have what is slow to begin ready by the time that `instance` is graded. Raises GraderBroken."""
        if instance.grader is not None:
            await self._graders[instance.grader.kind].prepare(instance)

    async def make_image(self, instance: TaskInstance) -> None:
        """Have the image that `instance` is graded on sealed; what fails, its grading meets again, and tells."""
        if instance.grader is not None:
            await self._containers.make_image(instance)

    async def grade(self, request: GradeRequest, aside: Aside = nullcontext) -> Verdict:
        """The verdict on one patch; raises nothing: what we could not tell is `infra`, masked, with its cause.

        Its instance is certified within `aside`, where nobody had done so.
        """
        began = time.monotonic()
        try:
            verdict = await self._verdict(request, aside)
        except ServiceError as error:
            verdict = ungraded(request, VerdictName.INFRA, mask=True, cause=f"{error.code}: {error.detail}")
            verdict = replace(verdict, attempts=self._attempts)
        except Exception as error:  # a defect of ours must become a masked verdict, not a lost reward
            log.exception("grading failed", instance_id=request.instance.instance_id, sid=request.sid)
            telemetry.INFRA_ERRORS.labels("defect").inc()
            cause = f"a defect of the service: {type(error).__name__}: {error}"
            verdict = ungraded(request, VerdictName.INFRA, mask=True, cause=cause)
        finally:
            self._containers.forget(request.sid)
        timings_s = {**verdict.timings_s, "total": time.monotonic() - began}
        for stage, seconds in timings_s.items():
            telemetry.GRADE_SECONDS.labels(stage).observe(seconds)
        return replace(verdict, timings_s=timings_s)

    async def run_unpatched(self, instance: TaskInstance) -> TestRun:
        """What the instance's tests give on the unpatched tree (`grade` runs nothing for an empty patch).

        Raises:
            ServiceError: the last attempt's.

        """
        return (await self._try_fresh(instance, b"", "")).run

    async def run_altered(
        self,
        instance: TaskInstance,
        patch: bytes,
        altered: Mapping[str, bytes],
        *,
        focus: str = "",
        room: Room | None = None,
    ) -> TestRun:
        """What the instance's tests give over `patch` when these of their files are replaced; `focus` is for pytest.

        They begin when there is `room`, their container already there; it may wait as long as another's tests take.

        Raises:
            ServiceError: the last attempt's.

        """
        return (await self._try_fresh(instance, patch, "", Altered(altered, focus, room))).run

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        """Those of `paths` that are text files of bounded size once `patch` is applied. Raises ServiceError."""
        laid = await self._lay(instance, patch, "")
        try:
            if laid.failure is not None:
                raise GraderBroken(laid.failure.cause)
            return await read_texts(laid.box.sandbox, instance.sandbox.workdir, paths)
        finally:
            self._containers.remove(laid.box.sandbox)

    async def test_files(self, instance: TaskInstance) -> Mapping[str, bytes]:
        """The files that hold the instance's tests, path -> text. Raises ServiceError."""
        assert instance.grader is not None  # an instance without one never comes this far
        laid = await self._lay(instance, b"", "")
        try:
            if laid.failure is not None:
                raise GraderBroken(laid.failure.cause)
            grader = self._graders[instance.grader.kind]
            return await grader.test_files(instance, laid.box.sandbox, timeout_s=self._bounds.setup_s)
        finally:
            self._containers.remove(laid.box.sandbox)

    async def _verdict(self, request: GradeRequest, aside: Aside) -> Verdict:
        instance = request.instance
        if instance.grader is None:
            cause = f"the instance has no grader: {instance.ungradable_because or 'its row names none'}"
            return ungraded(request, VerdictName.INFRA, mask=True, cause=cause)
        if request.patch is None or not request.patch.strip():
            why = "there was nothing to take a diff from" if request.patch is None else "nothing was changed"
            return ungraded(request, VerdictName.EMPTY_PATCH, mask=False, cause=request.patch_cause or why)
        if ungradable := (await self.finding(instance, await self._containers.image_digest(instance))).ungradable:
            return ungraded(request, VerdictName.INFRA, mask=True, cause=ungradable)
        # In a thread: the largest patches take a second to read.
        screened = await asyncio.to_thread(screen, request.patch, instance, self._runner_files)
        if screened.runner_files and self._runner_files == "refuse":
            cause = f"the patch touches the test runner's own files: {', '.join(screened.runner_files[:5])}"
            verdict = ungraded(request, VerdictName.TAMPERED, mask=False, cause=cause)
            return replace(verdict, runner_files=screened.runner_files)
        if screened.patch and (why := await self._reading.misread(screened.patch)):
            verdict = ungraded(request, VerdictName.PATCH_FAILED, mask=False, cause=f"the patch is refused: {why}")
            return replace(verdict, runner_files=screened.runner_files)
        attempt = await self._try_fresh(instance, screened.patch, request.sid)
        known = await self.finding(instance, attempt.image_digest)
        run, f2p_total, p2p_total = without(instance, attempt.run, known.quarantined)
        mask, why = False, ""
        if not attempt.blamed:
            mask, why = await self._calibration.mask(instance, run, timeout_s=self._bounds.tests_of(instance))
        verdict = Verdict(
            run.name,
            mask,
            run.cause + why,
            f2p_count=run.f2p_count,
            f2p_total=f2p_total,
            p2p_count=run.p2p_count,
            p2p_total=p2p_total,
            patch_exists=True,
            patch_applied=run.name is not VerdictName.PATCH_FAILED,
            f2p_failed=run.f2p_failed,
            p2p_failed=run.p2p_failed,
            f2p_stubs=known.stubs,
            quarantined=known.quarantined,
            certificate=known.said,
            apply_tier=attempt.tier,
            runner_files=screened.runner_files,
            stripped=screened.stripped,
            exit_code=run.exit_code,
            attempts=attempt.number,
            image_digest=attempt.image_digest,
            versions=self.versions(instance),
            timings_s=attempt.timings_s,
            log_tail=run.log_tail,
        )
        if self.confirming is None:
            return verdict
        return await self.confirming.confirm(instance, screened.patch, verdict, aside)

    async def finding(self, instance: TaskInstance, image_digest: str) -> Finding:
        """What is certified of the instance on this image; nothing where nothing is."""
        return await self._assays.finding(instance, image_digest) if self._assays and image_digest else Finding()

    async def _run_unpatched_once(self, instance: TaskInstance) -> TestRun:
        return (await self._attempt(instance, b"", "")).run

    async def _try_fresh(
        self,
        instance: TaskInstance,
        patch: bytes,
        sid: str,
        altered: Altered | None = None,
    ) -> Attempt:
        """Attempts on fresh containers until one can tell, or shows that the patch is why none can.

        Raises:
            ServiceError: the last attempt's. Exception: a defect of ours that the patch has no part in.

        """
        breaks: list[BrokeOff] = []
        began = time.monotonic()
        number = 0
        while number < self._attempts or is_suspect(breaks, number):
            number += 1
            if number > 1:
                await asyncio.sleep(self._retry_pause_s * (number - 1))
            failure: Exception
            try:
                attempt = await self._attempt(instance, patch, sid, altered)
            except BrokeOff as broken:
                failure = broken.error
                self._note(instance, sid, number, failure)
                breaks.append(broken)
                if cause := await self._control.blames(instance, breaks, began=began):
                    run = TestRun(VerdictName.NO_RESULTS, cause, 0, 0)
                    return Attempt(run, "", broken.image, {}, number, blamed=True)
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
        altered: Altered | None = None,
    ) -> Attempt:
        altered = altered or Altered()
        laid = await self._lay(instance, patch, sid, altered)
        try:
            async with altered.room or nullcontext(), self._blaming(laid.box, patch):
                run = laid.failure or await self._run_tests(instance, laid.box.sandbox, altered.files)
        finally:
            self._containers.remove(laid.box.sandbox)
        return Attempt(run, laid.tier, laid.box.image_digest, {**laid.timings_s, **run.timings_s})

    async def _lay(self, instance: TaskInstance, patch: bytes, sid: str, altered: Altered | None = None) -> Laid:
        """The patch in a container: the one made ahead where there is one, and where that is sound."""
        began = time.monotonic()
        if box := await self._containers.take(instance, sid):
            try:
                return await self._lay_in(box, instance, patch, {"create": time.monotonic() - began, "setup": 0.0})
            except ServiceError as error:  # it may have died while it waited: that is no attempt
                log.warning("a container made ahead was of no use", sid=sid, code=error.code, detail=error.detail)
        lasts_s = self._bounds.tests_of(instance) if altered and altered.room else 0.0
        env = {"PYTEST_ADDOPTS": altered.focus} if altered and altered.focus else {}
        box = await self._containers.make(instance, sid, lasts_s=lasts_s, env=env)
        return await self._lay_in(box, instance, patch, {"create": box.create_s, "setup": box.setup_s})

    async def _lay_in(self, box: Box, instance: TaskInstance, patch: bytes, timings_s: dict[str, float]) -> Laid:
        assert instance.grader is not None  # an instance without one never comes this far
        began = time.monotonic()
        # What the tests bring is placed over whatever the patch left at its paths: a file there makes
        # `git apply` refuse the whole test patch, and a right fix would be graded by the old tests.
        stray = created_paths(instance.test_patch.encode()) | instance.files.keys()
        if isinstance(instance.grader, SwebenchGrader):
            stray |= set(instance.grader.new_test_files)
        try:
            await self._graders[instance.grader.kind].prepare(instance)
            async with self._blaming(box, patch):
                applied = await apply_patch(
                    box.sandbox,
                    patch,
                    instance.files,
                    clear=stray,
                    workdir=instance.sandbox.workdir,
                    timeout_s=self._bounds.apply_s,
                )
            failure = None
            if applied.refused:
                cause = f"the patch does not apply to the clean tree: {applied.said.strip().rpartition(chr(10))[2]}"
                failure = TestRun(VerdictName.PATCH_FAILED, cause, 0, 0, log_tail=applied.said)
            elif applied.unplaced:
                # the patch put a file, or a link that leads nowhere good, where the tests need a folder
                cause = f"the tests' file {applied.unplaced} cannot be placed in the patched tree: {applied.said}"
                failure = TestRun(VerdictName.NO_RESULTS, cause, 0, 0)
        except BaseException:
            self._containers.remove(box.sandbox)
            raise
        return Laid(box, applied.tier, failure, {**timings_s, "apply": time.monotonic() - began})

    def _blaming(self, box: Box, patch: bytes) -> AbstractAsyncContextManager[None]:
        return blaming(self._containers.outside, box.sandbox.container_id, image=box.image_digest, patch=patch)

    async def _run_tests(
        self, instance: TaskInstance, sandbox: Sandbox, altered: Mapping[str, bytes] | None = None
    ) -> TestRun:
        assert instance.grader is not None  # an instance without one never comes this far
        timeout_s = self._bounds.tests_of(instance)
        memory = MemoryWatch(self._containers.outside, sandbox.container_id)
        try:
            # The grader's own deadline stops the tests; this one is for an engine that does not answer.
            bounded = self._containers.disk_bounded(instance, sandbox)
            async with asyncio.timeout(timeout_s + self._bounds.judge_s), bounded:
                run = await self._graders[instance.grader.kind].run(
                    instance,
                    sandbox,
                    timeout_s=timeout_s,
                    altered=altered,
                    clean=partial(self._containers.clean, instance),
                )
                killed = run.name is VerdictName.UNRESOLVED and run.exit_code == _KILLED
                if (killed or run.name is VerdictName.NO_RESULTS) and await memory.killed_at_limit():
                    cause = f"the tests ran out of the container's memory; {run.cause}"
                    return replace(run, name=VerdictName.NO_RESULTS, cause=cause, f2p_count=0, p2p_count=0)
                return run
        except DiskExceeded as error:
            return TestRun(VerdictName.NO_RESULTS, str(error), 0, 0)
        except TimeoutError:
            raise EngineUnavailable(f"the tests were not stopped at their limit of {timeout_s:g} s") from None
