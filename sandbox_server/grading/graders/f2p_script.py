"""Grader for instances with a Python file that ends in `sys.exit(pytest.main(...))`: resolved if it exits with 0."""

from collections.abc import Callable, Mapping

from sandbox_server.catalogue.instance import F2pScriptGrader, TaskInstance
from sandbox_server.grading.base import CleanSandbox, Grader, Judging, TestRun
from sandbox_server.grading.exit_code import ByExitCode, run_command
from sandbox_server.grading.supervised import read_texts
from sandbox_server.sandbox.base import Sandbox

_FILE = "/f2p_script.py"

# Images without conda often have python3 only.
_COMMAND = f'"$(type -P python || type -P python3)" {_FILE}'


class F2pScript(ByExitCode):
    """Writes the file outside the repository and runs it in the workdir with the environment's Python.

    The file is written right before it runs, and Python reads all of it before it imports any product code.
    """

    async def run(
        self,
        instance: TaskInstance,
        sandbox: Sandbox,
        *,
        timeout_s: float,
        altered: Mapping[str, bytes] | None = None,
        clean: CleanSandbox | None = None,
    ) -> TestRun:
        """See `Grader.run`."""
        assert isinstance(instance.grader, F2pScriptGrader)  # the registry chose by kind
        files = {_FILE: instance.grader.script.encode(), **(altered or {})}
        return await run_command(instance, sandbox, _COMMAND, files=files, timeout_s=timeout_s)

    async def test_files(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> Mapping[str, bytes]:
        """The script and the instance's `files`."""
        assert isinstance(instance.grader, F2pScriptGrader)  # the registry chose by kind
        files = await read_texts(sandbox, instance.sandbox.workdir, instance.files)
        return {_FILE: instance.grader.script.encode(), **files}


GRADER: Callable[[Judging], Grader] = F2pScript
