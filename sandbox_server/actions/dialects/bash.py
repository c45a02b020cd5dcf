"""Dialect `bash`: prose with exactly one fenced block of shell text."""

from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.content import fenced_blocks, scalar_text, strip_tail
from sandbox_server.actions.profiles import PLAIN

_LANGUAGES = frozenset({"bash", "sh", ""})
_HOW = "Write exactly one block, which begins with a line ```bash and ends with a line ```, with the commands to run."


class Bash:
    """See the module."""

    name = "bash"
    default_profile = PLAIN

    def parse(self, content: str, *, talk_turns: int) -> Call | Say:
        """The block's content as a call of `execute_bash`; blocks in other languages count as prose."""
        blocks = [
            inside for language, inside in fenced_blocks(strip_tail(scalar_text(content))) if language in _LANGUAGES
        ]
        if not blocks:
            return Say(f"No command was found in your answer. {_HOW}", "no_call", is_talk=True)
        if len(blocks) > 1:
            return Say(f"Your answer holds {len(blocks)} blocks of commands; none was run. {_HOW}", "many_calls")
        return Call("execute_bash", {"command": blocks[0].strip()})


DIALECT = Bash()
