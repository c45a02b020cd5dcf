"""Runs a task's own solution where an agent would work, and takes what it leaves: gold of tasks that carry files."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from sandbox_server import clock
from sandbox_server.catalogue.harbor.archives import unpacked
from sandbox_server.catalogue.instance import HarborGrader, TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.sandbox.base import Role, Runtime
from sandbox_server.scoring.captures import Captures

_UNPACK = "mkdir -p /solution && tar -x -z -f - -C /solution --no-same-owner && chmod +x /solution/solve.sh"
_UNPACK_S = 60.0


@dataclass(frozen=True, slots=True)
class Solved:
    """What a solution left."""

    files: bytes
    exit_code: int | None
    """Of solve.sh; None: it did not end in time."""
    said: str
    """The end of its output."""


class Oracle:
    """Runs solutions, each in a container of its own."""

    def __init__(self, runtime: Runtime, workspaces: Workspaces, captures: Captures, *, timeout_s: float) -> None:
        """`timeout_s` bounds each solution."""
        self._runtime = runtime
        self._workspaces = workspaces
        self._captures = captures
        self._timeout_s = timeout_s

    async def solve(self, instance: TaskInstance) -> Solved:
        """Run `solution/solve.sh` of a task that has one; what it leaves is taken whatever its exit code.

        Raises:
            GraderBroken: it has none that can be unpacked, or its files cannot be taken. ServiceError.
        """
        grader = instance.grader
        if not isinstance(grader, HarborGrader) or not grader.solution:
            raise GraderBroken(f"{instance.instance_id} has no solution")
        user = instance.sandbox.user
        deadline = clock.today() + timedelta(seconds=self._timeout_s + 600)
        spec = replace(await self._workspaces.spec(instance), role=Role.PREPARE, deadline=deadline, with_shell=False)
        sandbox = await self._runtime.create(spec)
        try:
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
            files, cause = await self._captures.files(sandbox.container_id, instance)
        finally:
            await asyncio.shield(self._runtime.remove(sandbox.container_id))
        if files is None:
            raise GraderBroken(f"what the solution left cannot be taken: {cause}")
        return Solved(files, run.exit_code, run.stdout.text()[-500:])
