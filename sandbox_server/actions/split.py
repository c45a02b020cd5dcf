"""Splits an action's text into its top-level commands, at top-level newlines, by tree-sitter-bash.

The grammar is not bash itself. A text stays in one piece, which is always right for bash and changes only the echo, if
its parse is uncertain: if it has an error or missing node, a heredoc that the grammar and bash could read differently,
a piece that does not parse alone, or more than MAX_SPLIT_BYTES.
"""

import re
import time

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

MAX_SPLIT_BYTES = 16_384
# Typical text of that size takes 5 ms. Error recovery (`a=(` over and over) is quadratic, up to 1 s, and useless here.
# The limit is on CPU time of this thread, so that the result does not depend on the machine's load.
_MAX_PARSE_CPU_S = 0.05

_LANGUAGE = Language(tree_sitter_bash.language())
_CONTINUATION = re.compile(rb"\\\n")
_BETWEEN = re.compile(rb"[ \t\n]*")
_DELIMITER = re.compile(rb"""(?:\\|(?P<quote>['"]?))(?P<word>[\w.-]+)(?(quote)(?P=quote))""")


def split_commands(text: str) -> list[str]:
    """The top-level commands of `text`, in order; a list of one if it cannot be split with certainty.

    Commands on one line (`a; b`, `a && b`), compound commands, heredocs and multi-line strings stay whole. A comment
    stays with the command before it; comments before the first command form a piece of their own, as in OpenHands 0.17.
    Only white space between commands is lost.
    """
    data = text.encode()
    if b"\n" not in data or len(data) > MAX_SPLIT_BYTES:
        return [text]
    spans = _spans(data)
    # one deadline for all: 8,192 lines of `a` take little each, but blocked the event loop for 0.25 s together
    deadline = time.thread_time() + _MAX_PARSE_CPU_S
    if len(spans) < 2 or any(_parse(data[start:end], deadline) is None for start, end in spans):
        return [text]
    return [data[start:end].decode() for start, end in spans]


def _parse(data: bytes, deadline: float) -> Node | None:
    """The syntax tree; None if it has errors or is not ready by `deadline` (CPU time of this thread)."""
    if time.thread_time() > deadline:
        return None
    try:
        tree = Parser(_LANGUAGE).parse(
            lambda offset, _: data[offset:],
            progress_callback=lambda _offset, _has_error: time.thread_time() > deadline,
        )
    except ValueError:  # raised by the binding when the callback stops the parse
        return None
    return None if tree.root_node.has_error else tree.root_node


def _spans(data: bytes) -> list[tuple[int, int]]:
    """[start, end) of each piece; empty if the text must stay whole."""
    root = _parse(data, time.thread_time() + _MAX_PARSE_CPU_S)
    if root is None or not _heredocs_are_plain(root, data):
        return []
    spans: list[tuple[int, int]] = []
    end = 0
    for node in root.children:
        gap = _CONTINUATION.sub(b"", data[end : node.start_byte])
        if not _BETWEEN.fullmatch(gap):
            return []
        # `;` and `&` are nodes too; they never stand first on a line.
        if not spans or (b"\n" in gap and node.type != "comment"):
            spans.append((node.start_byte, node.end_byte))
        else:
            spans[-1] = (spans[-1][0], node.end_byte)
        end = node.end_byte
    if not _BETWEEN.fullmatch(data[end:]):
        return []
    return spans


def _heredocs_are_plain(root: Node, data: bytes) -> bool:
    """Whether each heredoc ends where bash ends it: at the first line that is exactly the delimiter.

    The grammar also accepts an indented delimiter, or one followed by a space; bash reads past those.
    """
    if b"<<" not in data:
        return True
    unseen = [root]
    while unseen:
        node = unseen.pop()
        unseen.extend(node.children)
        if node.type == "heredoc_redirect":
            parts = {child.type: child for child in node.children}
            start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
            if start is None or end is None or end.end_byte != _heredoc_end(data, start, strip_tabs="<<-" in parts):
                return False
    return True


def _heredoc_end(data: bytes, start: Node, *, strip_tabs: bool) -> int:
    """Offset at which bash ends the heredoc whose delimiter is at `start`; -1 if that is uncertain."""
    plain = _DELIMITER.fullmatch(data[start.start_byte : start.end_byte])
    line_start = data.find(b"\n", start.end_byte) + 1
    while plain and line_start > 0:
        line_end = data.find(b"\n", line_start)
        line = data[line_start : line_end if line_end >= 0 else len(data)]
        if (line.lstrip(b"\t") if strip_tabs else line) == plain["word"]:
            return line_start + len(line)
        line_start = line_end + 1
    return -1
