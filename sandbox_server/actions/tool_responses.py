r"""Formats the results of a turn's tool calls: one `<tool_response>` block per call, in the calls' order.

A closing tag inside a block is written `<\/tool_response>`, so no output can end its own block or pass for another
call's, and `<tool_response>\n(.*?)\n</tool_response>` over all lines splits the observation again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.actions.batch import CommandResult
from sandbox_server.actions.profiles import cut_middle, in_seconds

_CLOSE = "</tool_response>"
_ESCAPED = "<\\/tool_response>"

RECORDED = "Your answer is recorded."
OVER = (
    "The interaction is over. The patch is taken from the working tree as it is when the session is closed "
    "(/postprocess); nothing more needs to be sent."
)


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a call that runs nothing."""

    text: str
    code: str
    """One word for the journal, like `Say.code`: answer, bad_call, unknown_tool, bad_parameter."""


def blocks(texts: Sequence[str]) -> str:
    """One observation from the texts of all calls."""
    return "\n".join(f"<tool_response>\n{text.replace(_CLOSE, _ESCAPED)}\n{_CLOSE}" for text in texts)


def unescaped(text: str) -> str:
    """The text of a block as it was before `blocks`."""
    return text.replace(_ESCAPED, _CLOSE)


def shown(result: CommandResult, timeout_s: float) -> str:
    """The text for a policy: the command's stdout, its stderr if any, and its end unless that is exit code 0."""
    parts = [result.stdout.rstrip("\n")]
    if result.stderr.strip():
        parts += ["[stderr]", result.stderr.rstrip("\n")]
    if result.error:
        parts.append(f"[The command did not run ({result.error}): the sandbox or its host is at its limit. Try again.]")
    elif result.timed_out and not result.wall_ms:
        parts.append("[The command did not run: the other calls of this turn took all its time.]")
    elif result.timed_out:
        parts.append(f"[The command was killed after {in_seconds(timeout_s)} s, with all that it had started.]")
    elif result.exit_code:
        parts.append(f"[exit code: {result.exit_code}]")
    return cut_middle("\n".join(part for part in parts if part)) or "[no output]"
