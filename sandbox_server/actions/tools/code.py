"""`code`: writes the source text to the instance's file and runs the instance's test command."""

from pathlib import PurePosixPath

from sandbox_server.actions.base import Call, Observation, ToolContext
from sandbox_server.actions.content import scalar_text
from sandbox_server.actions.profiles import cut_middle, headed

PASSED = "No errors found in test."


class Code:
    """See the module."""

    name = "code"

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Return PASSED if the command exits with 0, else its output.

        Raises:
            SandboxLost, EngineUnavailable, SandboxDiskFull.

        """
        task = context.instance.code
        if task is None:
            return self._observe(context, "This task names no file and no test for source text; nothing was run.", None)
        spec = context.instance.sandbox
        path = str(PurePosixPath(spec.workdir) / task.path)
        try:
            await context.sandbox.write_file(path, scalar_text(str(call.arguments["source"])).encode(), user=spec.user)
        except OSError as error:
            return self._observe(context, f"{path} could not be written: {error}", None)
        result = await context.sandbox.exec(
            ["bash", "-c", f"{spec.activate}\n{task.test_command}" if spec.activate else task.test_command],
            timeout_s=context.command_timeout_s,
            cwd=spec.workdir,
            user=spec.user or None,
            merge_streams=True,
        )
        if result.exit_code == 0 and not result.timed_out:
            return self._observe(context, PASSED, 0)
        output = result.stdout.text().rstrip("\n")
        if result.timed_out:
            return self._observe(context, f"{output}\n[The test ran out of time.]".lstrip("\n"), None, timed_out=True)
        return self._observe(
            context,
            output or f"The test failed with exit code {result.exit_code} and printed nothing.",
            result.exit_code,
        )

    def _observe(
        self, context: ToolContext, text: str, exit_code: int | None, *, timed_out: bool = False
    ) -> Observation:
        shown = text if text == PASSED else headed(self.name, cut_middle(text), context.profile)
        return Observation(shown, exit_code=exit_code, timed_out=timed_out)


TOOL = Code()
