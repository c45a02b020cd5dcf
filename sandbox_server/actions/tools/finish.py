"""`finish`: nothing ends here; a trainer ends a rollout itself and says so by /postprocess."""

from sandbox_server.actions.base import Call, Observation, ToolContext
from sandbox_server.actions.profiles import headed

_OVER = (
    "The interaction is over. The patch is taken from the working tree as it is when the session is closed "
    "(/postprocess); nothing more needs to be sent."
)


class Finish:
    """See the module."""

    name = "finish"

    async def run(self, call: Call, context: ToolContext) -> Observation:
        """Say so."""
        return Observation(headed(self.name, _OVER, context.profile))


TOOL = Finish()
