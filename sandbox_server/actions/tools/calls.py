"""`calls`: the tool calls of one turn, run in order because one uses the persistent shell or the editor."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from sandbox_server.actions.base import Call, Observation, Tool, ToolContext
from sandbox_server.actions.batch import Command
from sandbox_server.actions.tool_responses import Reply, blocks, shown
from sandbox_server.actions.tools import editor, shell

_OUT_OF_TIME = "[This call did not run: the other calls of this turn took all its time.]"
_STILL_RUNNING = "[This call did not run: the command before it still runs. Send an empty command to wait for it.]"
_NO_FOLDER = "Error: Invalid tool arguments - the persistent shell has no cwd; use cd."
_TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in (shell.TOOL, editor.TOOL)}


class Calls:
    """See the module. The argument `calls` has Calls, Commands, and Replies for calls that run nothing, in order."""

    name = "calls"

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Run the calls within the action's time; one block per call. A failed call does not stop the later ones.

        Raises:
            SandboxLost, EngineUnavailable, SandboxDiskFull.

        """
        began = time.monotonic()
        seen: list[Observation] = []
        for one in cast(Sequence[Call | Command | Reply], call.arguments["calls"]):
            left_s = context.command_timeout_s - (time.monotonic() - began)
            seen.append(await self._one(one, replace(context, command_timeout_s=left_s), first=not seen))
        ended = [one for one in seen if one.exit_code is not None]
        exit_code = next((one.exit_code for one in ended if one.exit_code), 0 if ended else None)
        # the first outcome that needs the policy's attention
        outcome = next((one.outcome for one in seen if one.outcome != "finished"), "finished")
        return Observation(blocks([one.text for one in seen]), exit_code, any(one.timed_out for one in seen), outcome)

    async def _one(self, one: Call | Command | Reply, context: ToolContext, *, first: bool) -> Observation:
        if isinstance(one, Reply):
            return Observation(one.text)
        if context.command_timeout_s <= 0:
            return Observation(_OUT_OF_TIME, outcome="no_time")
        if isinstance(one, Command):
            if not context.calls_in_order:
                return await self._fresh(one, context)
            if one.cwd:
                return Observation(_NO_FOLDER, outcome="bad_parameter")
            one = Call(shell.TOOL.name, {"command": one.command, "timeout": one.timeout_s})
        if one.tool == shell.TOOL.name:
            if not first and context.sandbox.shell.running:
                return Observation(_STILL_RUNNING, outcome="not_run")
            asked_s = cast("float | None", one.arguments.get("timeout"))
            if asked_s is not None:
                context = replace(context, command_timeout_s=min(asked_s, context.command_timeout_s))
        return await _TOOLS[one.tool].run(one, context)

    async def _fresh(self, command: Command, context: ToolContext) -> Observation:
        bounds = context.batches.bounds
        (result,) = await context.batches.run(
            context.sandbox, context.instance, [command], timeout_s=context.command_timeout_s
        )
        timeout_s = min(command.timeout_s or bounds.timeout_s, context.command_timeout_s)
        outcome = "killed" if result.timed_out else "finished"
        return Observation(shown(result, timeout_s), result.exit_code, result.timed_out, outcome)


TOOL = Calls()
