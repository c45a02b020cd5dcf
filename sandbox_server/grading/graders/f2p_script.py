"""Instances with a Python file that ends in `sys.exit(pytest.main(...))`: resolved when it exits 0."""

from collections.abc import Mapping

from sandbox_server.catalogue.instance import F2pScriptGrader, TaskInstance
from sandbox_server.grading.base import Grader, TestRun
from sandbox_server.grading.exit_code import run_command
from sandbox_server.sandbox.base import Sandbox

_FILE = "/f2p_script.py"


class F2pScript:
    """Writes the file outside the repository and runs it in the workdir with the environment's Python."""

    @property
    def versions(self) -> Mapping[str, str]:
        """No library judges: the exit code does."""
        return {}

    async def close(self) -> None:
        """Nothing was started."""

    async def prepare(self, instance: TaskInstance) -> Mapping[str, str]:
        """The script."""
        assert isinstance(instance.grader, F2pScriptGrader)  # the registry chose by kind
        return {_FILE: instance.grader.script}

    async def run(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> TestRun:
        """See `Grader.run`."""
        # Images without conda often have python3 only.
        command = f'"$(type -P python || type -P python3)" {_FILE}'
        return await run_command(instance, sandbox, command, timeout_s=timeout_s)


GRADER: type[Grader] = F2pScript
