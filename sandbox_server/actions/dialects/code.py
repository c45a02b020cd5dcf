"""Dialect `code`, from the protocol document's example: the content is the source text of the instance's file."""

from sandbox_server.actions.base import Call, Say
from sandbox_server.actions.content import fenced_blocks, scalar_text, strip_tail
from sandbox_server.actions.profiles import PLAIN


class Code:
    """See the module."""

    name = "code"
    default_profile = PLAIN

    def parse(self, content: str, *, talk_turns: int) -> Call | Say:
        """Every content is a call; if it has exactly one fenced block, that is the source."""
        content = scalar_text(content)
        kept = strip_tail(content)
        blocks = fenced_blocks(kept)
        if len(blocks) == 1:
            return Call("code", {"source": blocks[0][1]})
        # White space before the special tokens belongs to the source (its last newline).
        after = content[len(kept) :]
        return Call("code", {"source": kept + after[: len(after) - len(after.lstrip())]})


DIALECT = Code()
