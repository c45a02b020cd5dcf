"""Tool calls by a protocol of tools (MCP, OpenEnv), which work in a session of any dialect.

Such a call becomes an action: an assistant's message in OpenAI's form, with the protocol's name as `via`. The journal
stores that text, so the call is replayed, copied and scored like any other action. A policy that writes such a text
itself calls the same tools.
"""

import json
from collections.abc import Mapping

from sandbox_server.actions.base import Call, Dialect, Say
from sandbox_server.actions.tool_responses import unescaped

_BEGIN = '{"role": "assistant", "via": "'
_OPEN, _CLOSE = "<tool_response>\n", "\n</tool_response>"


def content_of(via: str, tool: str, arguments: Mapping[str, object]) -> str:
    """The text of the action that calls `tool`; `via`: the protocol's name."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    message = {"role": "assistant", "via": via, "tool_calls": [{"type": "function", "function": function}]}
    return json.dumps(message)


def unwrapped(observation: str) -> str:
    """The observation of such an action, without the `<tool_response>` tags around its result; a notice stays."""
    before, opening, block = observation.partition(_OPEN)
    return before + unescaped(block.removesuffix(_CLOSE)) if opening and block.endswith(_CLOSE) else observation


class WithProtocolCalls:
    """Parses actions of such a call by the dialect `calls`, and all other actions by the dialect `own`."""

    def __init__(self, own: Dialect, calls: Dialect) -> None:
        self.name = own.name
        self.default_profile = own.default_profile
        self._own = own
        self._calls = calls

    def parse(self, content: str, *, talk_turns: int) -> Call | Say:
        """Parse an action."""
        dialect = self._calls if content.startswith(_BEGIN) else self._own
        return dialect.parse(content, talk_turns=talk_turns)
