"""Instances that are resolved when a command exits 0."""

from collections.abc import Mapping

from sandbox_server.catalogue.instance import ScriptGrader, TaskInstance
from sandbox_server.grading.base import Grader, TestRun
from sandbox_server.grading.exit_code import run_command
from sandbox_server.sandbox.base import Sandbox


class Script:
    """Runs the instance's `command` in the workdir, after its activation."""

    @property
    def versions(self) -> Mapping[str, str]:
        """No library judges: the exit code does."""
        return {}

    async def close(self) -> None:
        """Nothing was started."""

    async def prepare(self, instance: TaskInstance) -> Mapping[str, str]:
        """Nothing."""
        return {}

    async def run(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> TestRun:
        """See `Grader.run`."""
        assert isinstance(instance.grader, ScriptGrader)  # the registry chose by kind
        return await run_command(instance, sandbox, instance.grader.command, timeout_s=timeout_s)


GRADER: type[Grader] = Script
