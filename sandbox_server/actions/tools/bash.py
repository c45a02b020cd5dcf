"""`bash`: the tool calls of one turn, in parallel, each in a fresh shell at the repository (SANDBOX_TOOL_CALLS)."""

from collections.abc import Sequence
from typing import cast

from sandbox_server.actions.base import Call, Observation, ToolContext, observed
from sandbox_server.actions.batch import Command
from sandbox_server.actions.tool_responses import Reply, blocks, shown
from sandbox_server.actions.tools import calls as in_order


class Bash:
    """See the module. The argument `calls` has Commands, and Replies for calls that run nothing, in order."""

    name = "bash"

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Run the commands; the observation has one block per call.

        Raises:
            SandboxLost, EngineUnavailable.

        """
        if context.calls_in_order:
            return await in_order.TOOL.run(call, context)
        calls = cast(Sequence[Command | Reply], call.arguments["calls"])
        bounds = context.batches.bounds
        commands = [one for one in calls if isinstance(one, Command)]
        taken = commands[: bounds.commands]
        results = await context.batches.run(
            context.sandbox, context.instance, taken, timeout_s=context.command_timeout_s
        )
        ended = iter(results)
        texts = []
        for one in calls:
            if isinstance(one, Reply):
                texts.append(one.text)
            elif (result := next(ended, None)) is None:
                texts.append(f"Error: only {bounds.commands} commands run in one turn; this one did not.")
            else:
                timeout_s = min(one.timeout_s or bounds.timeout_s, context.command_timeout_s)
                texts.append(shown(result, timeout_s))
        return observed(blocks(texts), results)


TOOL = Bash()
