"""Converts paths as a policy writes them to paths of the base tree. Pure, linear, never raises."""

import json
import re
from collections.abc import Iterable, Iterator

from sandbox_server.grading.localization.references import heading, links

_BULLET = re.compile(r"(?:[-*+•\u2013]|\d{1,4}[.)])\s+(?:\[[ xX]\]\s+)?")
_BETWEEN = re.compile(r"[,;|\t]|\sand\s")
_REMARKED = re.compile(r"(\S*[^\s:]\.[A-Za-z0-9_+-]+)(?:\s+[-\u2013\u2014(#]|:\s|::[A-Za-z_]).*")
"""A path with an ending, and a remark or a name behind it."""
_ENDING = re.compile(r".*\.[A-Za-z0-9]{1,5}")
_AROUND = "\u201c\u201d\u2018\u2019\ufeff\u200b\u2060"
"""Quotes of word processors; characters without a width."""
_AT_LINES = re.compile(r":\d{1,9}(?:[-:]\d{1,9})?$")
_QUOTED = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'|`([^`\n]*)`")
_NUMBER = re.compile(r"[-+]?[\d.]+")
_QUOTES = "\"'`"
_ESCAPED = re.compile(r"\\([0-7]{3}|[abtnvfr\"\\])")
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_LONGEST = 4096  # PATH_MAX of Linux: no tree has longer paths


class Roots:
    """The folders under which a policy may have seen the repository."""

    def __init__(self, roots: Iterable[str] = ()) -> None:
        """`roots`: absolute prefixes; the longest matching one is removed from a path."""
        parts = {tuple(part for part in root.split("/") if part) for root in roots}
        self._roots = sorted((root for root in parts if root), key=len, reverse=True)

    def relative(self, text: str) -> str:
        """The path in one entry of an answer, without quotes, bullet, commas and line numbers; "" if there is none.

        An absolute path outside the roots counts from `/`, because some policies take the repository for the root.
        """
        path = _bare(text)
        if not path or len(path) > _LONGEST or _NUMBER.fullmatch(path):
            return ""
        parts: list[str] = []
        for part in path.split("/"):
            if part == ".." and parts and parts[-1] != "..":
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        if path.startswith("/"):
            for root in self._roots:
                if tuple(parts[: len(root)]) == root:
                    return "/".join(parts[len(root) :])
        return "/".join(parts)


def entries(body: str) -> Iterator[str]:
    """The entries of a list of paths: JSON, a Python literal, or one per line; not cleaned yet."""
    body = body.strip()
    linked = body.startswith("[") and body.startswith(tuple(links(body)[:1]))  # a Markdown link, not a list
    if body.startswith(("[", "(", "{")) and body.endswith(("]", ")", "}", ",")) and not linked:
        yield from _of_list(body)
        return
    for line in body.splitlines():
        if not line.strip() or line.lstrip().startswith("```"):
            continue
        if (headed := heading(line)) is None:
            yield from _of_line(line)
        elif headed[0] > 1 and headed[1]:
            yield headed[1]


def _of_list(body: str) -> Iterator[str]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        pass
    else:
        if isinstance(values, list):
            yield from (value for value in values if isinstance(value, str))
        return
    # not `ast.literal_eval`: deep nesting can end the interpreter
    quoted = _QUOTED.findall(body)
    if quoted:
        yield from ("".join(groups) for groups in quoted)
    else:
        yield from re.split(r"[,\n]", body.strip("[](){}"))


def _of_line(line: str) -> Iterator[str]:
    if len(linked := links(line)) > 1:
        yield from linked
        return
    quoted = _QUOTED.findall(line)
    if len(quoted) > 1:
        yield from ("".join(groups) for groups in quoted)
        return
    pieces = [piece.strip() for piece in _BETWEEN.split(line)]
    if len(pieces) > 1 and all(_like_path(piece) for piece in pieces if piece):
        yield from filter(None, pieces)
    else:
        yield line


def _like_path(text: str) -> bool:
    return ("." in text or "/" in text) and not any(character.isspace() for character in text)


def unbulleted(text: str) -> str:
    """`text` without the bullet or number of a list item."""
    text = text.strip()
    bullet = _BULLET.match(text)
    return text if bullet is None else text[bullet.end() :]


def _bare(text: str) -> str:
    """`text` without the quotes, marks and remarks that people put around a path."""
    text = unbulleted(text).strip(_AROUND)
    if (remarked := _REMARKED.fullmatch(text)) is not None and not _ENDING.fullmatch(text):
        text = remarked[1]
    if text.startswith("<") and text.endswith(">") and "</" in text:
        text = text[text.find(">") + 1 : text.rfind("</")].strip()  # <file>src/a.py</file>
    if text.startswith("**") and text.endswith("**"):
        text = text.strip("*")
    if text[:1] == '"' and "\\" in text and (closing := text.rfind('"')) > 0:
        text = _of_git(text[1:closing])
    elif text[:1] and text[0] in _QUOTES and (closing := text.find(text[0], 1)) > 0:
        text = text[1:closing]  # the rest is a remark
    text = text.strip(" \t,;").strip(_QUOTES).strip()
    return _AT_LINES.sub("", text)


def _of_git(quoted: str) -> str:
    """Decode a path as git quotes it (core.quotePath): non-ASCII bytes as octal numbers."""
    found = bytearray()
    end = 0
    for escape in _ESCAPED.finditer(quoted):
        found += quoted[end : escape.start()].encode(errors="replace")
        found.append(_ESCAPES[escape[1]] if escape[1] in _ESCAPES else int(escape[1], 8) & 0xFF)
        end = escape.end()
    found += quoted[end:].encode(errors="replace")
    return found.decode(errors="replace")
