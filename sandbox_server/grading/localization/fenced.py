"""Answers as text: lines `path.py`, `class: C`, `function: f`, usually in a fenced block."""

import re
from dataclasses import dataclass

from sandbox_server.grading.localization.locations import Locations

_LABELLED = re.compile(r"(?:[-*+•]\s+)?\**(file|path|class|function|method|lines?)\**\s*:\**(.*)", re.IGNORECASE)
_PATH = re.compile(r"[^\s:]*(?:\.[A-Za-z0-9_+-]+|/[^\s:/]+)")
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    body: str
    closed: bool


def blocks(text: str) -> list[Block]:
    """The fenced blocks of `text`, the last one perhaps cut off."""
    found: list[Block] = []
    language: str | None = None
    inside: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped.startswith(_FENCE):
            if language is not None:
                inside.append(line)
        elif language is not None:
            found.append(Block(language, "\n".join(inside), closed=stripped == _FENCE))
            language = None
        elif len(stripped) > 2 * len(_FENCE) and stripped.endswith(_FENCE):
            found.append(Block("", stripped.strip("`"), closed=True))  # a block of one line
        else:
            language, inside = stripped.removeprefix(_FENCE).strip().lower(), []
    if language is not None:
        found.append(Block(language, "\n".join(inside), closed=False))
    return found


def read_lines(text: str, into: Locations) -> None:
    """Read the lines of a block.

    A file line alone counts as the file, a class line alone as the class; a function belongs to the class line above
    it, until a blank line or another file.
    """
    path = in_class = ""
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped:
            in_class = ""
        elif (labelled := _LABELLED.fullmatch(stripped)) is None:
            if found := _file_line(stripped, into):
                path, in_class = found, ""
        elif (label := labelled[1].lower()) in ("file", "path"):
            path, in_class = into.file(labelled[2]), ""
        elif not path:
            into.problem(f"{label} before any file")
        elif label == "class":
            in_class = into.module(path, labelled[2])
        elif label in ("function", "method"):
            into.entity(path, labelled[2], of=in_class)
        else:
            into.spelled_span(path, labelled[2].strip(" `"))


def _file_line(line: str, into: Locations) -> str:
    """Add what a line without a label names: `a.py`, `a.py:Foo.bar`, `a.py:10-19`; its path, "" for prose."""
    plain = line.lstrip("-*+• \t").strip("`'\" \t,")
    place = _PATH.match(plain)
    if place is None or place.end() not in (len(plain), plain.find(":")):
        into.problem(f"no location: {line[:80]}")
        return ""
    path = into.file(place[0])
    rest = plain[place.end() :].strip(": ")
    if path and rest[:1].isdigit():
        into.spelled_span(path, rest)
    elif path and rest:
        into.entity(path, rest)
    return path
