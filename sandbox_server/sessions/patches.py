"""The end of a session's tree: its diff against the tree that the image was prepared with.

The session's container is stilled first. Its files are then read in a fresh container of the same image, so by
programs, libraries and against a base that nothing in the session could touch.
"""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import resources

from sandbox_server import clock, telemetry
from sandbox_server.catalogue.instance import TaskInstance
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
from sandbox_server.sandbox.outside import FILES, Seen, Unseen

log = telemetry.logger(__name__)

_SCRIPT = resources.files(__package__).joinpath("capture.bash").read_text()
_NO_BASE, _NO_TREE, _NO_SPACE = 3, 4, 5
_ATTEMPTS = 2  # before the unchanged tree is tried
_MARGIN = 4  # after a reading that took too long, the unchanged tree must take less than this part of its bound
_CLOSE_S = 30.0  # as for the sessions' own containers

_LIMITS = Limits(memory_mb=2048, cpus=2.0, pids=256, disk_mb=2048)
"""Of a container that reads. A file of which git keeps more than its `disk_mb`, compressed, is in no patch; git holds
two copies of a changed file in memory, and files past 512 MB never."""


@dataclass(frozen=True, slots=True)
class _Taken:
    diff: bytes | None
    """None: the agent left nothing to take one from."""
    cause: str
    """What was remarkable."""


class _Failed(Exception):
    """No diff came, and it is not clear because of whom; `why` in a few words."""

    def __init__(self, why: str, *, timed_out: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.timed_out = timed_out


class Captures:
    """Takes the patches of sessions that end; nothing of a session runs any more then."""

    def __init__(self, runtime: Runtime, *, timeout_s: float, max_bytes: int) -> None:
        """`timeout_s` bounds one reading of a tree (SANDBOX_POSTPROCESS_TIMEOUT_S), `max_bytes` a patch."""
        self._runtime = runtime
        self._outside = runtime.outside
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._removing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for the containers being removed."""
        if self._removing:
            await asyncio.wait(self._removing, timeout=_CLOSE_S)

    async def take(self, session: SessionRecord, instance: TaskInstance, *, base_commit: str) -> PatchRecord:
        """The diff: new, binary, mode-changed, staged and committed changes in it, ignored files not.

        None, with its cause, where it cannot be taken although that of the unchanged tree can.

        Raises:
            SandboxLost: there is no container any more, or the host is too slow. InfrastructureError: the unchanged
                tree cannot be read either, or no container be made for it: ask again.

        """
        taken = await self._taken(session, instance)
        return PatchRecord(
            sid=session.sid,
            instance_id=session.instance_id,
            diff=taken.diff,
            cause=taken.cause,
            base_commit=base_commit,
            captured_at=clock.now(),
            sha256="" if taken.diff is None else hashlib.sha256(taken.diff).hexdigest(),
        )

    async def _taken(self, session: SessionRecord, instance: TaskInstance) -> _Taken:
        failure = _Failed("")
        for _ in range(_ATTEMPTS):
            try:
                return await self._read(session, instance)
            except _Failed as error:
                failure = error
                log.warning("capture failed", sid=session.sid, why=error.why)
        seen = await self._outside.see(session.container_id)
        try:
            await self._control(seen, instance, self._timeout_s / _MARGIN if failure.timed_out else self._timeout_s)
        except _Failed as error:
            why = f"its changes could not be taken: {failure.why}; nor could the unchanged tree: {error.why}"
            raise SandboxLost(why) if failure.timed_out else InfrastructureError(why) from error
        return _Taken(None, f"the changes cannot be taken from what the agent left: {failure.why}")

    async def _read(self, session: SessionRecord, instance: TaskInstance) -> _Taken:
        workdir = instance.sandbox.workdir
        if not self._outside.sees_files:
            sandbox = await self._runtime.attach(session.container_id)
            return self._of(await self._run(sandbox, workdir, "", "@0"), workdir)
        sandbox, seen = await self._beside(session, workdir)
        try:
            taken = self._of(await self._run(sandbox, workdir, FILES, seen.created_at), workdir)
        finally:
            self._remove_later(sandbox)
        # what somebody removes meanwhile loses its files one by one, which reads as the agent's deletions
        await self._outside.see(session.container_id)
        return taken

    async def _beside(self, session: SessionRecord, workdir: str) -> tuple[Sandbox, Seen]:
        seen = await self._outside.see(session.container_id)
        making = asyncio.create_task(
            self._outside.beside(session.container_id, self._spec(seen, session.sid), folder=workdir)
        )
        try:
            sandbox, stilled = await asyncio.gather(making, self._outside.still(session.container_id))
        except BaseException as error:
            making.cancel()
            with suppress(asyncio.CancelledError, ServiceError, Unseen):
                self._remove_later(await making)
            if isinstance(error, Unseen):
                raise _Failed(error.why) from error
            raise
        if seen.running and not stilled.running:
            # what was mounted may be the empty folder that its end left; a copy is made the next time
            self._remove_later(sandbox)
            raise _Failed("its container ended meanwhile")
        return sandbox, seen

    async def _control(self, seen: Seen, instance: TaskInstance, timeout_s: float) -> None:
        """Read the image's own tree in the same way. Raises _Failed: that does not work either."""
        workdir = instance.sandbox.workdir
        sandbox = await self._runtime.create(self._spec(seen, ""))
        try:
            self._of(await self._run(sandbox, workdir, "", seen.created_at, timeout_s), workdir)
        finally:
            self._remove_later(sandbox)

    def _spec(self, seen: Seen, sid: str) -> ContainerSpec:
        deadline = clock.today() + timedelta(seconds=2 * self._timeout_s + 60)
        return ContainerSpec(seen.image, Role.PREPARE, sid, deadline, limits=_LIMITS, with_shell=False)

    async def _run(
        self, sandbox: Sandbox, workdir: str, files: str, since: str, timeout_s: float | None = None
    ) -> ExecResult:
        try:
            return await sandbox.exec(
                ["bash", "-c", _SCRIPT, "capture", workdir, files, since],
                timeout_s=timeout_s or self._timeout_s,
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
            raise ImageUnavailable("the prepared image has no base to compare with; remove it, it is made anew")
        if result.exit_code == _NO_TREE:
            return _Taken(None, f"the agent removed the work tree {workdir}, or put something else in its place")
        if result.exit_code != 0:
            raise _Failed(f"git ended with {result.exit_code}: {result.stderr.text().strip()[-300:]}")
        diff = result.stdout.head + result.stdout.tail
        if result.stdout.dropped:
            size = len(diff) + result.stdout.dropped
            return _Taken(None, f"the patch of {size >> 20} MB is larger than SANDBOX_MAX_PATCH_MB")
        notes = result.stderr.text().splitlines()
        if "partial" in notes:
            return _Taken(diff, f"some files could not be read and are left out: {' '.join(notes)[:300]}")
        return _Taken(diff, "the agent removed .git; the changes were taken without it" if "no-git" in notes else "")

    def _remove_later(self, sandbox: Sandbox) -> None:
        task = asyncio.create_task(self._remove(sandbox))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def _remove(self, sandbox: Sandbox) -> None:
        try:
            await self._runtime.remove(sandbox.container_id)
        except ServiceError:
            log.warning("a capture's container is left to the reaper", container_id=sandbox.container_id, exc_info=True)


def none(session: SessionRecord) -> PatchRecord:
    """Of a session that is scored by what the policy answered; it stands for the session's end like any other."""
    return PatchRecord(
        sid=session.sid,
        instance_id=session.instance_id,
        diff=None,
        cause="a task of code search: no patch is taken",
        base_commit="",
        captured_at=clock.now(),
    )
