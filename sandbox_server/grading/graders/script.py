"""Grader for instances that are resolved if a command exits with 0."""

import shlex
from collections.abc import Callable, Mapping

from sandbox_server.catalogue.diff import file_sections
from sandbox_server.catalogue.instance import ScriptGrader, TaskInstance
from sandbox_server.grading.base import CleanSandbox, Grader, Judging, TestRun
from sandbox_server.grading.exit_code import ByExitCode, run_command
from sandbox_server.grading.supervised import read_texts
from sandbox_server.sandbox.base import Sandbox


class Script(ByExitCode):
    """Runs the instance's `command` in the workdir, with its activation."""

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
        assert isinstance(instance.grader, ScriptGrader)  # the registry chose by kind
        command = instance.grader.command
        return await run_command(instance, sandbox, command, files=altered or {}, timeout_s=timeout_s)

    async def test_files(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> Mapping[str, bytes]:
        """The instance's `files`, the existing files of its test patch, and the files that the command names."""
        assert isinstance(instance.grader, ScriptGrader)  # the registry chose by kind
        patched = sorted(path for section in file_sections(instance.test_patch.encode()) for path in section.new)
        try:
            words = shlex.split(instance.grader.command, comments=True)
        except ValueError:
            words = instance.grader.command.split()
        named = [word.partition("::")[0] for word in words if not word.startswith("-")]
        return await read_texts(sandbox, instance.sandbox.workdir, [*instance.files, *patched, *named])


GRADER: Callable[[Judging], Grader] = Script
