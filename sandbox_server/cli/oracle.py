"""Runs a task's own solution in place of an agent and takes its files: the gold of tasks that carry files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from sandbox_server import clock
from sandbox_server.catalogue.harbor.archives import unpacked
from sandbox_server.catalogue.instance import HarborGrader, TaskInstance
from sandbox_server.catalogue.instances import Instances
from sandbox_server.errors import GraderBroken
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.sandbox.base import Role, Runtime, Sandbox
from sandbox_server.scoring.captures import Captures
from sandbox_server.starts.steps import place_step_files

_UNPACK = "mkdir -p /solution && tar -x -z -f - -C /solution --no-same-owner && chmod +x /solution/solve.sh"
_UNPACK_S = 60.0


@dataclass(frozen=True, slots=True)
class SolutionResult:
    """The files that a solution left, and how it ended."""

    files: bytes
    exit_code: int | None
    """Exit code of solve.sh; None: it did not end in time."""
    said: str
    """The end of its output."""


class Oracle:
    """Runs solutions, each in a container of its own."""

    def __init__(
        self,
        runtime: Runtime,
        instances: Instances,
        workspaces: Workspaces,
        captures: Captures,
        *,
        timeout_s: float,
        begin_s: float,
    ) -> None:
        """`timeout_s` bounds each solution, `begin_s` each part of the start of a step."""
        self._runtime = runtime
        self._instances = instances
        self._begin_s = begin_s
        self._workspaces = workspaces
        self._captures = captures
        self._timeout_s = timeout_s

    async def solve(self, instance: TaskInstance) -> SolutionResult:
        """Run a task's `solution/solve.sh` and take the files that it leaves, whatever its exit code.

        A step begins with the files that the solutions of the earlier steps left.

        Raises:
            GraderBroken: the task has no solution that can be unpacked, or its files cannot be taken. ServiceError.
        """
        grader, user = instance.grader, instance.sandbox.user
        if not isinstance(grader, HarborGrader) or not grader.solution:
            raise GraderBroken(f"{instance.instance_id} has no solution")
        async with self._begun(instance) as sandbox:
            packed = unpacked(grader.solution)
            unpack = await sandbox.exec(
                ["bash", "-c", _UNPACK], timeout_s=_UNPACK_S, stdin=packed, cwd="/", user="root"
            )
            if unpack.exit_code != 0:
                raise GraderBroken(f"the solution cannot be unpacked: {unpack.stderr.text()[-300:]}")
            run = await sandbox.exec(
                ["bash", "-c", "exec /solution/solve.sh < /dev/null"],
                timeout_s=self._timeout_s,
                cwd=instance.sandbox.workdir,
                env={
                    **({} if user else {"HOME": "/root"}),
                    "DEBIAN_FRONTEND": "noninteractive",
                    **grader.solution_env,
                },
                user=user or "root",
                merge_streams=True,
                keep_bytes=1 << 16,
            )
            return SolutionResult(await self._files(sandbox, instance), run.exit_code, run.stdout.text()[-500:])

    async def untouched(self, instance: TaskInstance) -> bytes:
        """The files with which a step begins after the solutions of the earlier steps; b"" if it begins with the image.

        Raises:
            As `solve`.
        """
        if instance.step is None:
            return b""
        async with self._begun(instance) as sandbox:
            return await self._files(sandbox, instance)

    @asynccontextmanager
    async def _begun(self, instance: TaskInstance) -> AsyncIterator[Sandbox]:
        """A container as an agent would get it, removed after the block."""
        step = instance.step
        before = await self._instances.by_id(step.before) if step and step.before else None
        left = (await self.solve(before)).files if before else b""
        deadline = clock.today() + timedelta(seconds=self._timeout_s + 600)
        spec = replace(await self._workspaces.spec(instance), role=Role.PREPARE, deadline=deadline, with_shell=False)
        sandbox = await self._runtime.create(spec)
        try:
            roots = before.carried if before else ()
            if step and (failed := await place_step_files(sandbox, instance, left, roots, each_s=self._begin_s)):
                raise GraderBroken(f"{instance.instance_id} cannot begin: {failed}")
            yield sandbox
        finally:
            await asyncio.shield(self._runtime.remove(sandbox.container_id))

    async def _files(self, sandbox: Sandbox, instance: TaskInstance) -> bytes:
        files, cause = await self._captures.files(sandbox.container_id, instance)
        if files is None:
            raise GraderBroken(f"what the solution left cannot be taken: {cause}")
        return files
