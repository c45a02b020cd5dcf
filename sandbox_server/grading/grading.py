"""One grading: fresh container, patch, tests, verdict. docs/grading.md lists the verdicts."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from sandbox_server import telemetry
from sandbox_server.catalogue.diff import created_paths
from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable, GraderBroken, ServiceError
from sandbox_server.grading.altering import Room
from sandbox_server.grading.assay import Finding, without
from sandbox_server.grading.assays import Assays
from sandbox_server.grading.attempt import Altered, Attempt, Patched
from sandbox_server.grading.base import Aside, BaselineSource, Grader, GradeRequest, TestRun
from sandbox_server.grading.calibration import Calibration
from sandbox_server.grading.carrying import place, refusal
from sandbox_server.grading.confirming import Confirming
from sandbox_server.grading.containers import Bounds, Box, Containers
from sandbox_server.grading.control import BrokeOff, Control, blaming, is_suspect
from sandbox_server.grading.disk import DiskExceeded
from sandbox_server.grading.guard import RunnerFilePolicy, Screened, screen
from sandbox_server.grading.memory import MemoryWatch
from sandbox_server.grading.patching import Applied, apply_patch
from sandbox_server.grading.reading import GitReading
from sandbox_server.grading.supervised import read_texts
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.records import Verdict, VerdictName
from sandbox_server.sandbox.base import Sandbox

log = telemetry.logger(__name__)

_KILLED = 137  # 128 + SIGKILL


@dataclass(frozen=True, slots=True)
class Retries:
    """What happens after an attempt that broke off through no fault of the patch."""

    attempts: int = 3
    """Attempts in all."""
    pause_s: float = 1.0
    """Before the second attempt; before the third twice as long, and so on."""


class Grading:
    """Grades patches, each in its own container, which is removed once the verdict is known."""

    def __init__(
        self,
        containers: Containers,
        graders: Mapping[str, Grader],
        baseline: BaselineSource,
        *,
        runner_files: RunnerFilePolicy = "strip",
        bounds: Bounds | None = None,
        retries: Retries | None = None,
        assays: Assays | None = None,
        control_kept_s: float = 300.0,
    ) -> None:
        """`graders`: by grader kind. A successful control run is trusted for `control_kept_s` seconds."""
        self._containers = containers
        self._graders = graders
        self._runner_files = runner_files
        self._bounds = bounds or Bounds()
        self._retries = retries or Retries()
        self._calibration = Calibration(baseline, self.run_unpatched)
        self._assays = assays
        self.confirming: Confirming | None = None
        """Runs confirming runs for patches that earn a reward; None: there are no confirming runs."""
        self._control = Control(self._run_unpatched_once, kept_s=control_kept_s)
        self._reading = GitReading()

    async def close(self) -> None:
        """Stop the graders and remove the containers that were created ahead."""
        await self._containers.close()
        self._reading.close()
        for grader in self._graders.values():
            await grader.close()

    def versions(self, instance: TaskInstance) -> Mapping[str, str]:
        """Library -> version that would judge `instance`."""
        return self._graders[instance.grader.kind].versions if instance.grader else {}

    async def facts(self, instance: TaskInstance) -> Mapping[str, object]:
        """What a verdict depends on besides the instance and the patch: image, judge, settings. Part of `grade_key`.

        The image is "" if it is not on the engine yet.
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
        """A patch of `sid` will come soon: start creating its container if one more may be created ahead."""
        if instance.grader is not None:
            self._containers.expect(instance, sid)

    def forget(self, sid: str) -> None:
        """Drop the container created ahead for `sid`."""
        self._containers.forget(sid)

    async def prepare(self, instance: TaskInstance) -> None:
        """Start what the grader of `instance` needs and is slow to start. Raises GraderBroken."""
        if instance.grader is not None:
            await self._graders[instance.grader.kind].prepare(instance)

    async def make_image(self, instance: TaskInstance) -> None:
        """Build the sealed image that `instance` is graded on. Errors are ignored: the grading will report them."""
        if instance.grader is not None:
            await self._containers.make_image(instance)

    async def grade(self, request: GradeRequest, aside: Aside = nullcontext) -> Verdict:
        """Grade one patch. Never raises: a failure of the service gives a masked `infra` verdict with its cause.

        If the instance has no certificate yet, it is made within `aside`.
        """
        began = time.monotonic()
        try:
            verdict = await self._verdict(request, aside)
        except ServiceError as error:
            verdict = ungraded(request, VerdictName.INFRA, mask=True, cause=f"{error.code}: {error.detail}")
            verdict = replace(verdict, attempts=self._retries.attempts)
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
        """Run the instance's tests on the unpatched tree (`grade` runs no tests for an empty patch).

        Raises:
            ServiceError: from the last attempt.

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
        """Run the instance's tests over `patch` with the files in `altered` replaced, and pytest options `focus`.

        The container is created at once. The tests start when there is `room`, which may take as long as another run.

        Raises:
            ServiceError: from the last attempt.

        """
        return (await self._try_fresh(instance, patch, "", Altered(altered, focus, room))).run

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        """The text files of bounded size among `paths`, once `patch` is applied. Raises ServiceError."""
        patched = await self._patched(instance, patch, "")
        try:
            if patched.failure is not None:
                raise GraderBroken(patched.failure.cause)
            return await read_texts(patched.box.sandbox, instance.sandbox.workdir, paths)
        finally:
            self._containers.remove(patched.box.sandbox)

    async def test_files(self, instance: TaskInstance) -> Mapping[str, bytes]:
        """The files that hold the instance's tests, path -> text. Raises ServiceError."""
        assert instance.grader is not None  # instances without a grader are answered before this
        patched = await self._patched(instance, b"", "")
        try:
            if patched.failure is not None:
                raise GraderBroken(patched.failure.cause)
            grader = self._graders[instance.grader.kind]
            return await grader.test_files(instance, patched.box.sandbox, timeout_s=self._bounds.setup_s)
        finally:
            self._containers.remove(patched.box.sandbox)

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
        if instance.carried:
            screened = Screened(request.patch, (), ())  # no diff, so there are no sections to read
        else:
            # In a thread: reading the largest patches takes a second.
            screened = await asyncio.to_thread(screen, request.patch, instance, self._runner_files)
        if screened.runner_files and self._runner_files == "refuse":
            cause = f"the patch touches the test runner's own files: {', '.join(screened.runner_files[:5])}"
            verdict = ungraded(request, VerdictName.TAMPERED, mask=False, cause=cause)
            return replace(verdict, runner_files=screened.runner_files)
        if screened.patch and (why := await self._misread(instance, screened.patch)):
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
            score=run.score,
        )
        if self.confirming is None:
            return verdict
        return await self.confirming.confirm(instance, screened.patch, verdict, aside)

    async def _misread(self, instance: TaskInstance, patch: bytes) -> str:
        if instance.carried:
            return refusal(patch, instance.carried)
        return await self._reading.misread(patch)

    async def finding(self, instance: TaskInstance, image_digest: str) -> Finding:
        """The certificate's finding for this image, or an empty one."""
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
        """Attempt on fresh containers until one gives a result, or the control shows that the patch prevents one.

        Raises:
            ServiceError: from the last attempt. Exception: a defect of ours that the patch did not cause.

        """
        breaks: list[BrokeOff] = []
        began = time.monotonic()
        number = 0
        while number < self._retries.attempts or is_suspect(breaks, number):
            number += 1
            if number > 1:
                await asyncio.sleep(self._retries.pause_s * (number - 1))
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
        patched = await self._patched(instance, patch, sid, altered)
        try:
            async with altered.room or nullcontext(), self._blaming(patched.box, patch):
                run = patched.failure or await self._run_tests(instance, patched.box.sandbox, altered.files)
        finally:
            self._containers.remove(patched.box.sandbox)
        return Attempt(run, patched.tier, patched.box.image_digest, {**patched.timings_s, **run.timings_s})

    async def _patched(self, instance: TaskInstance, patch: bytes, sid: str, altered: Altered | None = None) -> Patched:
        """Apply the patch in a container: the one created ahead if it exists and is usable, else a new one."""
        began = time.monotonic()
        if box := await self._containers.take(instance, sid):
            try:
                return await self._patch_in(box, instance, patch, {"create": time.monotonic() - began, "setup": 0.0})
            except ServiceError as error:  # it may have died while parked, which must not count as an attempt
                log.warning(
                    "the grading container created ahead is unusable; creating another",
                    sid=sid,
                    code=error.code,
                    detail=error.detail,
                )
        lasts_s = self._bounds.tests_of(instance) if altered and altered.room else 0.0
        env = {"PYTEST_ADDOPTS": altered.focus} if altered and altered.focus else {}
        box = await self._containers.make(instance, sid, lasts_s=lasts_s, env=env)
        return await self._patch_in(box, instance, patch, {"create": box.create_s, "setup": box.setup_s})

    async def _patch_in(self, box: Box, instance: TaskInstance, patch: bytes, timings_s: dict[str, float]) -> Patched:
        assert instance.grader is not None  # instances without a grader are answered before this
        began = time.monotonic()
        # The test files overwrite whatever the patch left at their paths: a file there would make `git apply` refuse
        # the whole test patch, and a correct fix would be graded by the old tests.
        stray = created_paths(instance.test_patch.encode()) | instance.files.keys()
        if isinstance(instance.grader, SwebenchGrader):
            stray |= set(instance.grader.new_test_files)
        try:
            await self._graders[instance.grader.kind].prepare(instance)
            async with self._blaming(box, patch):
                applied = await self._apply(box.sandbox, instance, patch, stray)
            failure = None
            if applied.refused:
                cause = f"the patch does not apply to the clean tree: {applied.said.strip().rpartition(chr(10))[2]}"
                failure = TestRun(VerdictName.PATCH_FAILED, cause, 0, 0, log_tail=applied.said)
            elif applied.unplaced:
                # The patch put a file, or a bad link, where the tests need a folder.
                cause = f"the tests' file {applied.unplaced} cannot be placed in the patched tree: {applied.said}"
                failure = TestRun(VerdictName.NO_RESULTS, cause, 0, 0)
        except BaseException:
            self._containers.remove(box.sandbox)
            raise
        return Patched(box, applied.tier, failure, {**timings_s, "apply": time.monotonic() - began})

    async def _apply(self, sandbox: Sandbox, instance: TaskInstance, patch: bytes, stray: Iterable[str]) -> Applied:
        timeout_s = self._bounds.apply_s
        if not instance.carried:
            workdir = instance.sandbox.workdir
            return await apply_patch(sandbox, patch, instance.files, clear=stray, workdir=workdir, timeout_s=timeout_s)
        return await place(sandbox, patch, instance.carried, timeout_s=timeout_s) if patch else Applied("", "")

    def _blaming(self, box: Box, patch: bytes) -> AbstractAsyncContextManager[None]:
        return blaming(self._containers.outside, box.sandbox.container_id, image=box.image_digest, patch=patch)

    async def _run_tests(
        self, instance: TaskInstance, sandbox: Sandbox, altered: Mapping[str, bytes] | None = None
    ) -> TestRun:
        assert instance.grader is not None  # instances without a grader are answered before this
        timeout_s = self._bounds.tests_of(instance)
        memory = MemoryWatch(self._containers.outside, sandbox.container_id)
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
                killed = run.name is VerdictName.UNRESOLVED and run.exit_code == _KILLED
                if (killed or run.name is VerdictName.NO_RESULTS) and await memory.killed_at_limit():
                    cause = f"the tests ran out of the container's memory; {run.cause}"
                    return replace(run, name=VerdictName.NO_RESULTS, cause=cause, f2p_count=0, p2p_count=0)
                return run
        except DiskExceeded as error:
            return TestRun(VerdictName.NO_RESULTS, str(error), 0, 0)
        except TimeoutError:
            raise EngineUnavailable(f"the tests were not stopped at their limit of {timeout_s:g} s") from None
