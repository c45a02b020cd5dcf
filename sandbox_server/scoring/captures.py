"""Captures patches: the diff of a session's tree against the tree of its prepared image, or its changed files.

The session's container is stopped first. Its files are then read in a fresh container of the same image, so that
nothing in the session could have changed the programs, libraries and base used for the diff.
"""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import HarborGrader, TaskInstance
from sandbox_server.errors import (
    ImageUnavailable,
    InfrastructureError,
    SandboxDiskFull,
    SandboxExhausted,
    SandboxLost,
    ServiceError,
)
from sandbox_server.records import PatchRecord, SessionRecord
from sandbox_server.sandbox.base import ContainerSpec, ExecResult, Limits, Role, Runtime, Sandbox
from sandbox_server.sandbox.inspector import FILES, ContainerDetails, FolderUnreadable
from sandbox_server.scoring import task_artifacts
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_SCRIPT = resources.files(__package__).joinpath("capture.bash").read_text()
_CARRY = resources.files(__package__).joinpath("carry.bash").read_text()
_NO_BASE, _NO_TREE, _NO_SPACE = 3, 4, 5
_ATTEMPTS = 2  # readings of a session's tree before the unchanged tree is read
_PATIENCE = 3  # times the bound, for a second reading after the host had too little CPU for the first
_MARGIN = 4  # after a timeout, the unchanged tree must be read within this fraction of the bound
_CLOSE_S = 30.0  # as in `ending`
_TOLD = 300  # characters of names and messages in a cause

_LIMITS = Limits(memory_mb=2048, cpus=2.0, pids=256, disk_mb=2048)
"""Limits of the reading container. A file whose compressed git object exceeds `disk_mb` cannot be in a patch. Git
holds two copies of a changed file in memory, unless the file is larger than 512 MB."""


@dataclass(frozen=True, slots=True)
class _Taken:
    diff: bytes | None
    """None if no diff can be taken from what the agent left."""
    cause: str
    """Why there is no diff or only part of one, or another anomaly; "" for none."""


class _Failed(Exception):
    """No diff was taken, because of either the agent or the service; `why`: a short reason."""

    def __init__(self, why: str, *, timed_out: bool = False, starved: bool = False) -> None:
        """`starved`: the reading got too little CPU to tell whether the tree or the host was the reason."""
        super().__init__(why)
        self.why = why
        self.timed_out = timed_out
        self.starved = starved


class Captures:
    """Takes the patches of sessions that end. Afterwards nothing in such a session runs any more."""

    def __init__(self, runtime: Runtime, *, timeout_s: float, max_bytes: int, cpu_shares: int) -> None:
        """`timeout_s` bounds one reading of a tree (SANDBOX_POSTPROCESS_TIMEOUT_S), `max_bytes` the size of a patch.

        `cpu_shares`: CPU weight of a reading container; the same as for gradings, so that reading a large tree does not
        delay them.
        """
        self._runtime = runtime
        self._inspector = runtime.inspector
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._cpu_shares = cpu_shares
        self._removing = TaskSet("reading containers")

    async def close(self) -> None:
        """Wait for pending container removals."""
        await self._removing.settle(_CLOSE_S)

    async def take(self, session: SessionRecord, instance: TaskInstance, *, base_commit: str) -> PatchRecord:
        """Take the session's patch: new, binary, mode-changed, staged and committed changes.

        Ignored files are left out unless the agent tracks them. If the instance carries files, the patch holds these
        files instead (carry.bash). The diff is None, with a cause, if it cannot be taken although the unchanged tree
        can be read.

        Raises:
            SandboxLost: the container is gone, or the host too slow. InfrastructureError: the unchanged tree cannot
                be read either, or no container can be made; retry.

        """
        taken = await self._taken(session.container_id, session.sid, instance)
        return PatchRecord(
            sid=session.sid,
            instance_id=session.instance_id,
            diff=taken.diff,
            cause=taken.cause,
            base_commit=base_commit,
            captured_at=clock.now(),
            sha256="" if taken.diff is None else hashlib.sha256(taken.diff).hexdigest(),
            container_id=session.container_id,
        )

    async def files(self, container_id: str, instance: TaskInstance) -> tuple[bytes | None, str]:
        """What `take` would take from a container without a session, and the cause. Raises as `take`."""
        taken = await self._taken(container_id, "", instance)
        return taken.diff, taken.cause

    async def _taken(self, container_id: str, sid: str, instance: TaskInstance) -> _Taken:
        failure, timeout_s = _Failed(""), self._timeout_s
        await task_artifacts.collect(self._runtime, container_id, instance, timeout_s=self._timeout_s)
        for _ in range(_ATTEMPTS):
            try:
                taken = await self._read(container_id, sid, instance, timeout_s)
                return await self._with_evidence(container_id, instance, taken)
            except _Failed as error:
                failure = error
                log.warning("capture failed", sid=sid, why=error.why)
                if error.starved:
                    timeout_s = _PATIENCE * self._timeout_s
        if failure.starved:
            raise SandboxLost(f"the host was too slow to take its changes: {failure.why}")
        details = await self._inspector.inspect(container_id)
        try:
            await self._control(details, instance, self._timeout_s / _MARGIN if failure.timed_out else self._timeout_s)
        except _Failed as error:
            why = f"its changes could not be taken: {failure.why}; nor could the unchanged tree: {error.why}"
            raise SandboxLost(why) if failure.timed_out else InfrastructureError(why) from error
        return _Taken(None, f"the changes cannot be taken from what the agent left: {failure.why}")

    async def _with_evidence(self, container_id: str, instance: TaskInstance, taken: _Taken) -> _Taken:
        """Add the artifacts of the services, now that nothing of the agent runs any more."""
        if taken.diff is None or not isinstance(instance.grader, HarborGrader) or not instance.grader.artifacts:
            return taken
        bounds = task_artifacts.Bounds(self._timeout_s, self._max_bytes - len(taken.diff))
        found = await task_artifacts.of_services(self._runtime.services, container_id, instance.grader, bounds)
        causes = "; ".join(filter(None, (taken.cause, *found.left_out)))[:_TOLD]
        return _Taken(task_artifacts.added(taken.diff, found.archive), causes)

    async def _read(self, container_id: str, sid: str, instance: TaskInstance, timeout_s: float) -> _Taken:
        workdir = instance.sandbox.workdir
        if not self._inspector.sees_files:
            sandbox = await self._runtime.attach(container_id)
            since = (await self._inspector.inspect(container_id)).created_at if instance.carried else "@0"
            return self._of(await self._run(sandbox, instance, "", since, timeout_s), workdir)
        sandbox, details = await self._create_reader(container_id, sid, workdir)
        try:
            result = await self._run(sandbox, instance, FILES, details.created_at, timeout_s)
            if result.timed_out:
                await self._check_cpu(sandbox, timeout_s)
            taken = self._of(result, workdir)
        finally:
            self._remove_later(sandbox)
        # while a container is removed, its files vanish one by one and look like the agent's deletions: check again
        await self._inspector.inspect(container_id)
        return taken

    async def _check_cpu(self, reader: Sandbox, timeout_s: float) -> None:
        """Raise _Failed, starved, if a reading that ran into its bound has got less than half of it as CPU time.

        A policy decides how much there is to read, but not how busy the host is. On a host without other work, nearly
        all the time of a reading is CPU time.
        """
        with suppress(ServiceError):
            used_s = (await self._runtime.cpu_times([reader.container_id])).get(reader.container_id)
            if used_s is not None and used_s < self._timeout_s / 2:
                why = f"in {timeout_s:g} s it got {used_s:.1f} s of CPU (SANDBOX_POSTPROCESS_TIMEOUT_S)"
                raise _Failed(why, timed_out=True, starved=True)

    async def _create_reader(self, container_id: str, sid: str, workdir: str) -> tuple[Sandbox, ContainerDetails]:
        details = await self._inspector.inspect(container_id)
        making = asyncio.create_task(
            self._inspector.create_reader(container_id, self._spec(details, sid), folder=workdir)
        )
        try:
            sandbox, stopped = await asyncio.gather(making, self._inspector.freeze_or_kill(container_id))
        except BaseException as error:
            making.cancel()
            with suppress(asyncio.CancelledError, ServiceError, FolderUnreadable):
                self._remove_later(await making)
            if isinstance(error, FolderUnreadable):
                raise _Failed(error.why) from error
            raise
        if details.running and not stopped.running:
            # the mount may show the empty folder that the container's end left; the next attempt copies the files
            self._remove_later(sandbox)
            raise _Failed("its container ended meanwhile")
        return sandbox, details

    async def _control(self, details: ContainerDetails, instance: TaskInstance, timeout_s: float) -> None:
        """Read the image's unchanged tree in the same way. Raises _Failed if that fails too."""
        workdir = instance.sandbox.workdir
        sandbox = await self._runtime.create(self._spec(details, ""))
        try:
            self._of(await self._run(sandbox, instance, "", details.created_at, timeout_s), workdir)
        finally:
            self._remove_later(sandbox)

    def _spec(self, details: ContainerDetails, sid: str) -> ContainerSpec:
        deadline = clock.today() + timedelta(seconds=(_PATIENCE + 1) * self._timeout_s + 60)
        return ContainerSpec(
            details.image, Role.PREPARE, sid, deadline, limits=_LIMITS, cpu_shares=self._cpu_shares, with_shell=False
        )

    async def _run(
        self, sandbox: Sandbox, instance: TaskInstance, files: str, since: str, timeout_s: float
    ) -> ExecResult:
        argv = [_SCRIPT, "capture", instance.sandbox.workdir, files, since]
        if instance.carried:
            argv = [_CARRY, "carry", files, since, instance.sandbox.workdir, *instance.carried]
        try:
            return await sandbox.exec(
                ["bash", "-c", *argv],
                timeout_s=timeout_s,
                cwd="/",
                user="root",
                keep_bytes=self._max_bytes,
            )
        except (SandboxLost, SandboxExhausted) as error:
            raise _Failed(f"reading them took too much memory or too many processes ({error.detail})") from error

    def _of(self, result: ExecResult, workdir: str) -> _Taken:
        if result.timed_out:
            why = f"not read within {self._timeout_s:g} s (SANDBOX_POSTPROCESS_TIMEOUT_S)"
            raise _Failed(why, timed_out=True)
        if result.exit_code == _NO_SPACE:
            raise SandboxDiskFull("no room to take the diff; free space on the engine's disk, then ask again")
        if result.exit_code == _NO_BASE:
            raise ImageUnavailable("the prepared image has no base to compare with; remove the image, it is made again")
        if result.exit_code == _NO_TREE:
            return _Taken(None, f"the agent removed the work tree {workdir}, or put something else in its place")
        if result.exit_code != 0:
            raise _Failed(f"reading them ended with {result.exit_code}: {result.stderr.text().strip()[-300:]}")
        diff = result.stdout.head + result.stdout.tail
        if result.stdout.dropped:
            size = len(diff) + result.stdout.dropped
            return _Taken(None, f"the patch of {size >> 20} MB is larger than SANDBOX_MAX_PATCH_MB")
        notes = result.stderr.text().splitlines()
        if left_out := [note for note in notes if note.startswith("left out: ")]:
            return _Taken(diff, f"links lead to what is not taken: {'; '.join(left_out)[:_TOLD]}")
        hidden = "".join(
            f"not in the patch, because .gitignore hides them: new files, {note.removeprefix('hidden ')}"[:_TOLD]
            for note in notes
            if note.startswith("hidden ")
        )
        if "partial" in notes:
            return _Taken(diff, f"some files could not be read and are left out: {' '.join(notes)[:_TOLD]}")
        without_git = "the agent removed .git; the changes were taken without it" if "no-git" in notes else ""
        return _Taken(diff, "; ".join(filter(None, (without_git, hidden))))

    def _remove_later(self, sandbox: Sandbox) -> None:
        self._removing.start(self._remove(sandbox))

    async def _remove(self, sandbox: Sandbox) -> None:
        try:
            await self._runtime.remove(sandbox.container_id)
        except ServiceError:
            log.warning("a capture's container is left to the reaper", container_id=sandbox.container_id, exc_info=True)


def empty_patch(session: SessionRecord) -> PatchRecord:
    """The empty patch of a code search session, whose score depends on the policy's answer alone."""
    return PatchRecord(
        sid=session.sid,
        instance_id=session.instance_id,
        diff=None,
        cause="a task of code search: no patch is taken",
        base_commit="",
        captured_at=clock.now(),
    )
