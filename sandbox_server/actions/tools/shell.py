"""`execute_bash`: runs the commands of one action in the persistent shell, or handles a command still running there."""

import time

from sandbox_server.actions.base import Call, Observation, ToolContext
from sandbox_server.actions.content import scalar_text
from sandbox_server.actions.profiles import OPENHANDS, PLAIN, headed
from sandbox_server.actions.shell_frames import (
    NOTHING_RUNNING_EXIT_CODE,
    NUL_EXIT_CODE,
    OpenHandsFrame,
    PlainFrame,
    ShellFrame,
    interrupt_exit_code,
)
from sandbox_server.actions.split import split_commands
from sandbox_server.sandbox.base import ShellOutcome, ShellResult

_FRAMES: dict[str, ShellFrame] = {OPENHANDS: OpenHandsFrame(), PLAIN: PlainFrame()}
# Seconds that upstream waits after an empty command, and after text for a running command.
_POLL_S = 5.0
# Even if an action's time is just over, its command is started, so that its timeout is shown like any other.
_LEAST_TIMEOUT_S = 0.1


class ExecuteBash:
    """See the module."""

    name = "execute_bash"

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Run the text, or type it to the command that is running; an empty text polls, `ctrl+c` interrupts.

        Raises:
            SandboxLost, EngineUnavailable.

        """
        command = scalar_text(str(call.arguments["command"]))
        shell, frame = context.sandbox.shell, _FRAMES[context.profile]
        wait_s = min(context.soft_timeout_s or _POLL_S, context.command_timeout_s)
        if "\0" in command:
            return self._observe(context, frame.refused(), NUL_EXIT_CODE, None)
        if not command.strip():
            result = await shell.poll(wait_s=wait_s) if shell.running else None
            exit_code = NOTHING_RUNNING_EXIT_CODE if result is None else result.exit_code
            return self._observe(context, frame.polled(result), exit_code, result)
        if command.strip().lower() == "ctrl+c":
            result = await shell.interrupt(wait_s=wait_s) if shell.running else None
            return self._observe(context, frame.interrupted(result), interrupt_exit_code(result), result)
        if shell.running:
            steps = [(command, await shell.send(command, wait_s=wait_s))]
        else:
            steps = await self._run_pieces(command, context)
        last = steps[-1][1]
        text = frame.ran(steps, timeout_s=context.command_timeout_s)
        timed_out = last.outcome in (ShellOutcome.INTERRUPTED, ShellOutcome.KILLED)
        return self._observe(context, text, last.exit_code, last, timed_out=timed_out)

    async def _run_pieces(self, command: str, context: ToolContext) -> list[tuple[str, ShellResult]]:
        """Run the top-level commands one by one, up to the first that does not end with 0, within the action's time."""
        pieces = split_commands(command) if context.profile == OPENHANDS else [command]
        began = time.monotonic()
        soft_s = context.soft_timeout_s
        steps: list[tuple[str, ShellResult]] = []
        for index, piece in enumerate(pieces):
            spent_s = time.monotonic() - began
            result = await context.sandbox.shell.run(
                piece,
                timeout_s=max(context.command_timeout_s - spent_s, _LEAST_TIMEOUT_S),
                soft_timeout_s=None if soft_s is None else max(soft_s - spent_s, _LEAST_TIMEOUT_S),
                since_mark=index == 0,
            )
            steps.append((piece, result))
            if result.outcome is not ShellOutcome.FINISHED or result.exit_code != 0:
                break
        return steps

    def _observe(
        self, context: ToolContext, text: str, exit_code: int, result: ShellResult | None, *, timed_out: bool = False
    ) -> Observation:
        return Observation(
            headed(self.name, text, context.profile),
            exit_code=exit_code,
            timed_out=timed_out,
            outcome=ShellOutcome.FINISHED if result is None else result.outcome,
        )


TOOL = ExecuteBash()
