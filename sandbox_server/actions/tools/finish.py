"""`finish`: nothing ends here; a trainer ends a rollout itself and says so by /postprocess."""

from sandbox_server.actions.base import Call, Observation, ToolContext
from sandbox_server.actions.profiles import headed
from sandbox_server.actions.tool_responses import OVER


class Finish:
    """See the module."""

    name = "finish"

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Say so."""
        return Observation(headed(self.name, OVER, context.profile))


TOOL = Finish()
