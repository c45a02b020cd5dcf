"""From a patch to its verdict. docs/grading.md lists the verdicts; `attempts.py` runs the tests."""

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import GraderBroken, ServiceError
from sandbox_server.grading.altering import RunSlots, Texts
from sandbox_server.grading.assay import Finding, without
from sandbox_server.grading.assays import Assays
from sandbox_server.grading.attempts import Attempts, Retries, RunOptions
from sandbox_server.grading.base import BaselineSource, Grader, GradeRequest, Judging, SlotRelease, TestRun
from sandbox_server.grading.calibration import Calibration
from sandbox_server.grading.carrying import refusal
from sandbox_server.grading.confirming import Confirming
from sandbox_server.grading.containers import Bounds, Containers
from sandbox_server.grading.excerpts import excerpts
from sandbox_server.grading.guard import RunnerFilePolicy, ScreenedPatch, screen
from sandbox_server.grading.reading import GitReading
from sandbox_server.grading.supervised import read_texts
from sandbox_server.grading.verdicts import ungraded
from sandbox_server.verdicts import Verdict, VerdictName

log = telemetry.logger(__name__)


@cache
def code_of_grading() -> str:
    """SHA-256 (hex) of this package's sources: guard, graders, confirming runs and whatever else decides a verdict."""
    digest = sha256()
    here = Path(__file__).parent
    for path in sorted((*here.rglob("*.py"), *here.rglob("*.bash"))):
        digest.update(f"{path.relative_to(here)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


class Grading:
    """Grades patches, each in its own container, which is removed once the verdict is known."""

    def __init__(
        self,
        containers: Containers,
        graders: Mapping[str, Grader],
        baseline: BaselineSource,
        *,
        git_home: Path,
        runner_files: RunnerFilePolicy = "strip",
        judging: Judging | None = None,
        bounds: Bounds | None = None,
        retries: Retries | None = None,
        assays: Assays | None = None,
        control_kept_s: float = 300.0,
    ) -> None:
        """`graders`: by grader kind, made with `judging`. `git_home`: as for `GitReading`.

        `control_kept_s`: seconds for which two findings are reused, that a control run succeeded, and that an
        instance's own trees (unpatched, gold) give no results.
        """
        self._containers = containers
        self._graders = graders
        self._runner_files = runner_files
        self._judging = judging or Judging()
        self._bounds = bounds or Bounds()
        self._retries = retries or Retries()
        self._attempts = Attempts(containers, graders, self._bounds, self._retries, control_kept_s=control_kept_s)
        self._calibration = Calibration(baseline, self._run_own, kept_s=control_kept_s)
        self._assays = assays
        self.confirming: Confirming | None = None
        """Runs confirming runs for patches that earn a reward; None: there are no confirming runs."""
        self._reading = GitReading(git_home)

    async def close(self) -> None:
        """Stop the graders and remove the containers that were created ahead."""
        await self._containers.close()
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
            "judging": [self._judging.cpu_s, self._judging.wall_s, self._judging.memory_mb],
            "confirm": self.confirming.mode if self.confirming else "off",
            "network": self._containers.network,
            "tests_s": self._bounds.tests_of(instance),
            "limits": [limits.memory_mb, limits.cpus, limits.pids, limits.disk_mb],
            "code": code_of_grading(),
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

    async def grade(self, request: GradeRequest, release_slot: SlotRelease = nullcontext) -> Verdict:
        """Grade one patch. Never raises: a failure of the service gives a masked `infra` verdict with its cause.

        If the instance has no certificate yet, it is made while `release_slot` frees the slot.
        """
        began = time.monotonic()
        try:
            verdict = await self._verdict(request, release_slot)
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
        return await self._run_own(instance, b"")

    async def _run_own(self, instance: TaskInstance, patch: bytes) -> TestRun:
        return (await self._attempts.run(instance, patch)).run

    async def run_altered(
        self,
        instance: TaskInstance,
        patch: bytes,
        altered: Mapping[str, bytes],
        *,
        focus: str = "",
        slots: RunSlots | None = None,
        slack: float = 1.0,
        most_s: float = math.inf,
    ) -> TestRun:
        """Run the instance's tests over `patch` with the files in `altered` replaced, and pytest options `focus`.

        The container is created at once. The tests wait for one of `slots`, which may take as long as another run. They
        may take `slack` times their limit, but at most `most_s` seconds.

        Raises:
            ServiceError: from the last attempt.

        """
        return (await self._attempts.run(instance, patch, options=RunOptions(altered, focus, slots, slack, most_s))).run

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        """The text files of bounded size among `paths`, as they are once `patch` is applied. Raises ServiceError."""
        async with self._attempts.patched(instance, patch) as patched:
            if patched.failure is not None:
                raise GraderBroken(patched.failure.cause)
            return await read_texts(patched.container.sandbox, instance.sandbox.workdir, paths)

    async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
        """The files that hold the instance's tests, and those among `paths` before the tests' set-up.

        Raises:
            ServiceError.

        """
        assert instance.grader is not None  # instances without a grader are answered before this
        async with self._attempts.patched(instance, b"") as patched:
            if patched.failure is not None:
                raise GraderBroken(patched.failure.cause)
            sandbox, grader = patched.container.sandbox, self._graders[instance.grader.kind]
            base = await read_texts(sandbox, instance.sandbox.workdir, paths)
            return Texts(await grader.test_files(instance, sandbox, timeout_s=self._bounds.setup_s), base)

    async def _verdict(self, request: GradeRequest, release_slot: SlotRelease) -> Verdict:
        if (verdict := await self._without_patch(request)) is not None:
            return verdict
        assert request.patch is not None  # `_without_patch` answers such requests
        screened = await self._screened(request.instance, request.patch)
        if (verdict := await self._refused(request, screened)) is not None:
            return verdict
        verdict = await self._tested(request, screened)
        if self.confirming is None:
            return verdict
        return await self.confirming.confirm(request.instance, screened.patch, verdict, release_slot)

    async def _without_patch(self, request: GradeRequest) -> Verdict | None:
        """The verdict if the instance cannot be graded, or there is no patch; else None."""
        instance = request.instance
        if instance.grader is None:
            cause = f"the instance has no grader: {instance.ungradable_because or 'its row names none'}"
            return ungraded(request, VerdictName.INFRA, mask=True, cause=cause)
        if request.patch is None or not request.patch.strip():
            why = "there was nothing to take a diff from" if request.patch is None else "nothing was changed"
            return ungraded(request, VerdictName.EMPTY_PATCH, mask=False, cause=request.patch_cause or why)
        if ungradable := (await self.finding(instance, await self._containers.image_digest(instance))).ungradable:
            return ungraded(request, VerdictName.INFRA, mask=True, cause=ungradable)
        return None

    async def _screened(self, instance: TaskInstance, patch: bytes) -> ScreenedPatch:
        if instance.carried:
            return ScreenedPatch(patch, (), ())  # no diff, so there are no sections to read
        # In a thread: reading the largest patches takes a second.
        return await asyncio.to_thread(screen, patch, instance, self._runner_files)

    async def _refused(self, request: GradeRequest, screened: ScreenedPatch) -> Verdict | None:
        """The verdict on a patch that is refused before any container is created; else None."""
        if screened.runner_files and self._runner_files == "refuse":
            cause = f"the patch touches the test runner's own files: {', '.join(screened.runner_files[:5])}"
            verdict = ungraded(request, VerdictName.TAMPERED, mask=False, cause=cause)
        elif screened.patch and (why := await self._misread(request.instance, screened.patch)):
            verdict = ungraded(request, VerdictName.PATCH_FAILED, mask=False, cause=f"the patch is refused: {why}")
        else:
            return None
        return replace(verdict, runner_files=screened.runner_files)

    async def _tested(self, request: GradeRequest, screened: ScreenedPatch) -> Verdict:
        """The verdict of the tests, before any confirming run. Raises ServiceError."""
        instance = request.instance
        attempt = await self._attempts.run(instance, screened.patch, request.sid)
        known = await self.finding(instance, attempt.image_digest)
        run, f2p_total, p2p_total = without(instance, attempt.run, known.quarantined)
        mask, why = False, ""
        if not attempt.blamed:
            mask, why = await self._calibration.mask(instance, run, timeout_s=self._bounds.tests_of(instance))
        return Verdict(
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
            excerpts=await excerpts(run.log, (*run.f2p_failed, *run.p2p_failed)),
            score=run.score,
        )

    async def _misread(self, instance: TaskInstance, patch: bytes) -> str:
        if instance.carried:
            return refusal(patch, (*instance.carried, *instance.placed))
        return await self._reading.misread(patch)

    async def finding(self, instance: TaskInstance, image_digest: str) -> Finding:
        """The certificate's finding for this image, or an empty one."""
        return await self._assays.finding(instance, image_digest) if self._assays and image_digest else Finding()
