"""One grading: a fresh container, the patch, the tests, a verdict; docs/grading.md has the table."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from sandbox_server import telemetry
from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable, GraderBroken, ServiceError
from sandbox_server.grading.base import BaselineSource, Grader, GradeRequest, TestRun
from sandbox_server.grading.calibration import Calibration
from sandbox_server.grading.diff import created_paths
from sandbox_server.grading.guard import RunnerFilePolicy, screen
from sandbox_server.grading.ladder import apply_patch
from sandbox_server.grading.memory import killed_at_limit
from sandbox_server.grading.verdicts import totals, ungraded
from sandbox_server.records import Verdict, VerdictName
from sandbox_server.sandbox.base import ContainerSpec, Limits, Role, Runtime, Sandbox

log = telemetry.logger(__name__)

_KILLED = 137  # 128 + SIGKILL


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds that each stage of one attempt may take."""

    create_s: float = 600.0
    """A pull of the image included."""
    setup_s: float = 300.0
    """All setup commands together, and the placing of files."""
    apply_s: float = 120.0
    tests_s: float = 1800.0
    """Upper bound on what an instance asks for."""
    judge_s: float = 150.0
    """For what follows the tests: killing what is left, parsing (with a start of the library's worker)."""
    remove_s: float = 60.0

    def of_attempt(self, tests_s: float) -> float:
        """The longest one attempt can last."""
        return self.create_s + self.setup_s + self.apply_s + tests_s + self.judge_s + self.remove_s


@dataclass(slots=True)
class _Attempt:
    """What came of one fresh container."""

    run: TestRun
    tier: str
    image_digest: str
    timings_s: dict[str, float]
    number: int = 1


@dataclass(slots=True)
class _Stages:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began


class Grading:
    """Grades patches, each on a container of its own that is gone when the verdict is there."""

    def __init__(
        self,
        runtime: Runtime,
        graders: Mapping[str, Grader],
        baseline: BaselineSource,
        *,
        limits: Limits,
        runner_files: RunnerFilePolicy = "strip",
        network: str = "none",
        attempts: int = 3,
        bounds: Bounds | None = None,
        retry_pause_s: float = 1.0,
    ) -> None:
        """`graders` by the kind of instance they take; `limits` where the instance names none of its own."""
        self._runtime = runtime
        self._graders = graders
        self._limits = limits
        self._runner_files = runner_files
        self._network = network
        self._attempts = attempts
        self._bounds = bounds or Bounds()
        self._retry_pause_s = retry_pause_s
        self._calibration = Calibration(baseline, self.run_unpatched)

    async def close(self) -> None:
        """End what the graders started."""
        for grader in self._graders.values():
            await grader.close()

    def versions(self, instance: TaskInstance) -> Mapping[str, str]:
        """Library -> version that would judge `instance`."""
        return self._graders[instance.grader.kind].versions if instance.grader else {}

    @property
    def runner_files(self) -> RunnerFilePolicy:
        """The policy in force; part of the key under which verdicts are shared."""
        return self._runner_files

    async def grade(self, request: GradeRequest) -> Verdict:
        """The verdict on one patch; raises nothing: what we could not tell is `infra`, masked, with its cause."""
        began = time.monotonic()
        try:
            verdict = await self._verdict(request)
        except ServiceError as error:
            verdict = ungraded(request, VerdictName.INFRA, mask=True, cause=f"{error.code}: {error.detail}")
            verdict = replace(verdict, attempts=self._attempts)
        except Exception as error:  # a defect of ours must become a masked verdict, not a lost reward
            log.exception("grading failed", instance_id=request.instance.instance_id, sid=request.sid)
            telemetry.INFRA_ERRORS.labels("defect").inc()
            cause = f"a defect of the service: {type(error).__name__}: {error}"
            verdict = ungraded(request, VerdictName.INFRA, mask=True, cause=cause)
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

    async def _verdict(self, request: GradeRequest) -> Verdict:
        instance = request.instance
        if instance.grader is None:
            cause = f"the instance has no grader: {instance.ungradable_because or 'its row names none'}"
            return ungraded(request, VerdictName.INFRA, mask=True, cause=cause)
        if request.patch is None or not request.patch.strip():
            why = "there was nothing to take a diff from" if request.patch is None else "nothing was changed"
            return ungraded(request, VerdictName.EMPTY_PATCH, mask=False, cause=request.patch_cause or why)
        # In a thread: the largest patches take a second to read.
        screened = await asyncio.to_thread(screen, request.patch, instance, self._runner_files)
        if screened.runner_files and self._runner_files == "refuse":
            cause = f"the patch touches the test runner's own files: {', '.join(screened.runner_files[:5])}"
            verdict = ungraded(request, VerdictName.TAMPERED, mask=False, cause=cause)
            return replace(verdict, runner_files=screened.runner_files)
        attempt = await self._try_fresh(instance, screened.patch, request.sid)
        run = attempt.run
        mask, why = await self._calibration.mask(instance, run, timeout_s=self._tests_s(instance))
        f2p_total, p2p_total = totals(instance)
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

    async def _try_fresh(self, instance: TaskInstance, patch: bytes, sid: str) -> _Attempt:
        """Attempts on fresh containers until one can tell; the last one's error is raised."""
        for number in range(1, self._attempts + 1):
            try:
                attempt = await self._attempt(instance, patch, sid)
            except ServiceError as error:
                telemetry.INFRA_ERRORS.labels(error.code).inc()
                log.warning(
                    "grading attempt failed",
                    instance_id=instance.instance_id,
                    sid=sid,
                    attempt=number,
                    code=error.code,
                    detail=error.detail,
                )
                if number == self._attempts:
                    raise
                await asyncio.sleep(self._retry_pause_s * number)
            else:
                attempt.number = number
                return attempt
        raise ValueError("at least one attempt is needed")

    async def _attempt(self, instance: TaskInstance, patch: bytes, sid: str) -> _Attempt:
        stages = _Stages()
        with stages.stage("create"):
            try:
                async with asyncio.timeout(self._bounds.create_s):
                    image = await self._runtime.resolve_image(instance.sandbox.images)
                    sandbox = await self._runtime.create(self._container(instance, image.name, sid))
            except TimeoutError:
                raise EngineUnavailable(f"no grading container within {self._bounds.create_s:.0f} s") from None
        try:
            with stages.stage("apply"):
                failure, tier = await self._prepare(instance, sandbox, patch)
            run = failure or await self._run_tests(instance, sandbox)
        except OSError as error:  # a file of ours could not be written in a container that nothing ran in yet
            raise EngineUnavailable(f"the grading container does not take files: {error}") from error
        finally:
            await asyncio.shield(self._remove(sandbox.container_id))
        return _Attempt(run, tier, image.digest, {**stages.seconds, **run.timings_s})

    def _tests_s(self, instance: TaskInstance) -> float:
        return min(instance.eval_timeout_s, self._bounds.tests_s)

    def _container(self, instance: TaskInstance, image: str, sid: str) -> ContainerSpec:
        own = {name: getattr(instance.sandbox, name) for name in ("memory_mb", "cpus", "pids", "disk_mb")}
        lasts_s = self._bounds.of_attempt(self._tests_s(instance))
        return ContainerSpec(
            image=image,
            role=Role.GRADE,
            sid=sid,
            deadline=datetime.now(UTC) + timedelta(seconds=lasts_s),
            workdir=instance.sandbox.workdir,
            env=instance.sandbox.env,
            network=self._network,
            limits=replace(self._limits, **{name: value for name, value in own.items() if value is not None}),
            with_shell=False,
        )

    async def _prepare(self, instance: TaskInstance, sandbox: Sandbox, patch: bytes) -> tuple[TestRun | None, str]:
        """Set up, apply, place: (the verdict where it ends here, the command that took the patch)."""
        workdir, bounds = instance.sandbox.workdir, self._bounds
        for command in instance.sandbox.setup_commands:
            done = await sandbox.exec(
                ["bash", "-c", command], timeout_s=bounds.setup_s, cwd=workdir, user="root", merge_streams=True
            )
            if done.exit_code != 0:
                raise GraderBroken(f"setup command failed ({done.exit_code}): {command}: {done.stdout.text()[-300:]}")
        tier = ""
        if patch:
            # What the tests bring is placed over whatever the patch left at its paths: a file there makes
            # `git apply` refuse the whole test patch, and a right fix would be graded by the old tests.
            stray = created_paths(instance.test_patch.encode()) | instance.files.keys()
            if isinstance(instance.grader, SwebenchGrader):
                stray |= set(instance.grader.new_test_files)
            applied = await apply_patch(sandbox, patch, clear=stray, workdir=workdir, timeout_s=bounds.apply_s)
            if not (tier := applied.tier):
                cause = f"the patch does not apply to the clean tree: {applied.said.strip().rpartition(chr(10))[2]}"
                return TestRun(VerdictName.PATCH_FAILED, cause, 0, 0, log_tail=applied.said), ""
        for path, text in instance.files.items():
            try:
                await sandbox.write_file(path if path.startswith("/") else f"{workdir}/{path}", text.encode())
            except (NotADirectoryError, IsADirectoryError, PermissionError) as error:
                # the patch put a file, or a link that leads nowhere good, where the tests need a folder
                cause = f"the tests' file {path} cannot be placed in the patched tree: {error}"
                return TestRun(VerdictName.NO_RESULTS, cause, 0, 0), tier
        return None, tier

    async def _run_tests(self, instance: TaskInstance, sandbox: Sandbox) -> TestRun:
        assert instance.grader is not None  # an instance without one never comes this far
        timeout_s = self._tests_s(instance)
        try:
            # The grader's own deadline stops the tests; this one is for an engine that does not answer.
            async with asyncio.timeout(timeout_s + self._bounds.judge_s):
                run = await self._graders[instance.grader.kind].run(instance, sandbox, timeout_s=timeout_s)
                killed = run.name is VerdictName.UNRESOLVED and run.exit_code == _KILLED
                if (killed or run.name is VerdictName.NO_RESULTS) and await killed_at_limit(sandbox):
                    cause = f"the tests ran out of the container's memory; {run.cause}"
                    return replace(run, name=VerdictName.NO_RESULTS, cause=cause, f2p_count=0, p2p_count=0)
                return run
        except TimeoutError:
            raise EngineUnavailable(f"the tests were not stopped at their limit of {timeout_s:g} s") from None

    async def _remove(self, container_id: str) -> None:
        try:
            async with asyncio.timeout(self._bounds.remove_s):
                await self._runtime.remove(container_id)
        except (ServiceError, TimeoutError):
            log.warning("grading container left to the reaper", container_id=container_id, exc_info=True)
