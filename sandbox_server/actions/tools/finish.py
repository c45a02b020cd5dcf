"""`finish`: only acknowledges the policy's end; the trainer ends the session, by /postprocess."""

from sandbox_server.actions.base import Call, Observation, ToolContext
from sandbox_server.actions.profiles import headed
from sandbox_server.actions.tool_responses import OVER


class Finish:
    """See the module."""

    name = "finish"

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Return the acknowledgement."""
        return Observation(headed(self.name, OVER, context.profile))


TOOL = Finish()
