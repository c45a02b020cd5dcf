"""The Model Context Protocol: a session's tools for agents."""

import re

from sandbox_server.protocols._traits import Trait
from sandbox_server.protocols.mcp.routes import ROUTER as ROUTER
from sandbox_server.protocols.mcp.rpc import refuse

TRAITS = (
    Trait(re.compile(r"/mcp/sessions/[0-9]{1,19}/?$"), refuse=refuse, token=True),
    Trait(re.compile(r"/mcp(/|$)"), refuse=refuse),
)
