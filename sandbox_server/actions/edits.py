"""The editor's texts: pure functions from file text to the policy's view and the text to write.

Source: openhands-aci 0.1.2, read and run. Deliberately identical: tabs become spaces in an edited file; an empty string
counts as a missing argument; a view is cut before its lines are numbered.
"""

from dataclasses import dataclass

CONTEXT_LINES = 4
MAX_VIEW_CHARS = 16_000
MAX_LINES_NAMED = 1_000
"""Limit on the occurrences listed in one error; beyond it upstream's list is truncated."""
_CLIPPED = (
    "<response clipped><NOTE>To save on context only part of this file has been shown to you. You should retry this "
    "tool after you have searched inside the file with `grep -n` in order to find the line numbers of what you are "
    "looking for.</NOTE>"
)
# Shorter texts are also searched at overlapping positions, as upstream does; for longer ones that would be quadratic.
_OVERLAP_CHARS = 1_000


class EditRefused(Exception):
    """The edit is impossible; `message` is shown to the policy, without `ERROR:`."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that can be made: the new text and what the policy is shown."""

    before: str
    """The text that undo restores; its tabs are already spaces."""
    after: str
    message: str


def missing(argument: str, command: str) -> EditRefused:
    """The error for a missing or empty argument."""
    return EditRefused(f"Parameter `{argument}` is required for command: {command}.")


def invalid(argument: str, value: object, hint: str) -> EditRefused:
    """The error for an unusable argument."""
    return EditRefused(f"Invalid `{argument}` parameter: {value}. {hint}")


def clip(text: str) -> str:
    """The first MAX_VIEW_CHARS characters, with a note if there are more."""
    return text if len(text) <= MAX_VIEW_CHARS else text[:MAX_VIEW_CHARS] + _CLIPPED


def numbered(text: str, described_as: str, first_line: int = 1) -> str:
    """`text` numbered as by `cat -n`, under a line that describes it."""
    lines = clip(text).expandtabs().split("\n")
    shown = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, first_line))
    return f"Here's the result of running `cat -n` on {described_as}:\n{shown}\n"


def view(text: str, path: str, view_range: object) -> str:
    """All of `text`, or the lines of `view_range` (first, last; -1: to the end)."""
    if not view_range:
        return numbered(text, path)
    if (
        not isinstance(view_range, list)
        or len(view_range) != 2
        or not all(isinstance(number, int) for number in view_range)
    ):
        raise invalid("view_range", view_range, "It should be a list of two integers.")
    lines = text.split("\n")
    first, last = view_range
    if not 1 <= first <= len(lines):
        hint = f"Its first element `{first}` should be within the range of lines of the file: {[1, len(lines)]}."
        raise invalid("view_range", view_range, hint)
    if last > len(lines):
        hint = f"Its second element `{last}` should be smaller than the number of lines in the file: `{len(lines)}`."
        raise invalid("view_range", view_range, hint)
    if last != -1 and last < first:
        hint = f"Its second element `{last}` should be greater than or equal to the first element `{first}`."
        raise invalid("view_range", view_range, hint)
    return numbered("\n".join(lines[first - 1 : None if last == -1 else last]), path, first)


def replace(text: str, path: str, old: str, new: str) -> Edit:
    """Replace `old`, which must occur exactly once, by `new`."""
    text, old, new = text.expandtabs(), old.expandtabs(), new.expandtabs()
    occurrences = text.count(old)
    if occurrences == 0:
        raise EditRefused(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if occurrences > 1:
        raise EditRefused(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines {_lines_of(text, old)}. "
            "Please ensure it is unique."
        )
    head, tail = text.split(old)
    after = head + new + tail
    line = head.count("\n")
    first = max(0, line - CONTEXT_LINES)
    snippet = "\n".join(after.split("\n")[first : line + CONTEXT_LINES + new.count("\n") + 1])
    return Edit(
        text,
        after,
        f"The file {path} has been edited. {numbered(snippet, f'a snippet of {path}', first + 1)}"
        "Review the changes and make sure they are as expected. Edit the file again if necessary.",
    )


def _lines_of(text: str, old: str) -> list[int]:
    """Line number of each occurrence of `old`, at most MAX_LINES_NAMED."""
    lines: list[int] = []
    step = 1 if len(old) < _OVERLAP_CHARS else len(old)
    line, counted = 1, 0
    place = text.find(old)
    while place >= 0 and len(lines) < MAX_LINES_NAMED:
        line += text.count("\n", counted, place)
        counted = place
        lines.append(line)
        place = text.find(old, place + step)
    return lines


def insert(text: str, path: str, insert_line: int, new: str) -> Edit:
    """Insert the lines of `new` after line `insert_line` (0: at the top)."""
    text, new = text.expandtabs(), new.expandtabs()
    lines, new_lines = text.split("\n"), new.split("\n")
    if not 0 <= insert_line <= len(lines):
        hint = f"It should be within the range of lines of the file: {[0, len(lines)]}"
        raise invalid("insert_line", insert_line, hint)
    above, below = lines[:insert_line], lines[insert_line:]
    first = max(0, insert_line - CONTEXT_LINES)
    snippet = "\n".join([*above[first:], *new_lines, *below[:CONTEXT_LINES]])
    return Edit(
        text,
        "\n".join([*above, *new_lines, *below]),
        f"The file {path} has been edited. {numbered(snippet, 'a snippet of the edited file', first + 1)}"
        "Review the changes and make sure they are as expected (correct indentation, no duplicate lines, etc). "
        "Edit the file again if necessary.",
    )
