"""Converts paths as a policy writes them to paths of the base tree. Pure, linear, never raises."""

import json
import re
from collections.abc import Iterable, Iterator

from sandbox_server.grading.localization.references import heading, links

_BULLET = re.compile(
    r"(?:[-*+>]|[^\x00-\x7f\w\s]\ufe0f?|\(?\d{1,4}[.)\uff0e\u3001]|[a-z]\))\s+(?:\[[ xX]\]\s+)?|\d{1,4}[\uff0e\u3001]"
)
"""A bullet is also any sign beyond ASCII, such as an arrow or a picture, with a space after it."""
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>")
_WITHIN = ("class", "class_name", "function", "function_name", "method", "method_name", "line", "lines")
_OF_XML = frozenset((*_WITHIN, "file", "path", "file_path", "filename"))
_ATTRIBUTE = re.compile(rf"\b({'|'.join(_OF_XML)})=\"([^\"<>]*)\"")
_LABELLED = re.compile(
    r"\**(?:(?P<file>(?:final\s+)?answers?|files?|paths?|file\s?(?:names?|paths?))(?:\s+\d{1,3})?|class(?:es)?|"
    r"functions?|methods?|lines?)\**\s*(?::\**(?:\s+|$)|\uff1a\**\s*)(?P<value>.*)",
    re.IGNORECASE,
)
"""`File 1: src/a.py`, `Answer: src/a.py`; `class: Foo` below a file names none."""
_RULE = re.compile(r"[\s|:]*-[\s|:-]*")
"""The line between the head and the body of a Markdown table."""
_BETWEEN = re.compile(r"[,;|\t\u3001\uff0c\uff1b]|\sand\s")
_REMARKED = re.compile(
    r"(\S*[^\s:]\.[A-Za-z0-9_+-]+)(?:\s+(?:[-=\u2013\u2014(#<\u2190\u2192]|//)|:\s|\s*[\uff08\uff1a]).*"
)
"""A path with an ending, and a remark behind it."""
_NAMING = re.compile(r"(\S*[^\s:]\.[A-Za-z0-9]{1,5})::?[A-Za-z_][\w.:]*(?:\([^()]*\))?")
"""`src/a.py:Foo.bar`, `src/a.py::Foo::bar`."""
_BOLD = re.compile(r"\*\*([^*\s]+)\*\*(?:\s*[-=:(#\u2013\u2014\u2192].*)?")
_ENDING = re.compile(r".*\.[A-Za-z0-9]{1,5}")
_WORD = re.compile(r"[\w@./+\[\]-]*\.[A-Za-z0-9]{1,5}")
"""One of several paths on a line that are separated by spaces only."""
_AROUND = "\u201c\u201d\u2018\u2019\ufeff\u200b\u2060"
"""Quotes of word processors; characters without a width."""
_AT_LINES = re.compile(r":\d{1,9}(?:[-:]\d{1,9})?$")
_QUOTED = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'|`([^`\n]*)`")
_WINDOWS = re.compile(r"[\w.+@-]*(?:\\[\w.+@-]+)+")
"""A path with backslashes and no slash. File names on Linux hardly ever contain a backslash."""
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
        path = _bare(text).removeprefix("file://")
        if _WINDOWS.fullmatch(path) and _ENDING.fullmatch(path):
            path = path.replace("\\", "/")
        if not any(map(str.isalnum, path)) or len(path) > _LONGEST or _NUMBER.fullmatch(path):
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
    lines = body.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        if not line.strip() or line.lstrip().startswith("```"):
            continue
        if line.lstrip().startswith("|"):
            if not _RULE.fullmatch(line) and not _RULE.fullmatch(following):
                yield from _of_row(line)
        elif (headed := heading(line)) is None:
            for name, piece in _between_tags(line):
                if name not in _WITHIN:
                    yield from _of_line(piece)
        elif headed[0] > 1 and headed[1]:
            yield headed[1]


def untagged(line: str) -> list[str]:
    """The texts in a line of HTML or XML; a line of anything else as it is.

    What is in an element or attribute is given its name: `<class>Foo</class>` and `<at class="Foo"/>` as `class: Foo`.
    """
    bare = line.strip()
    if bare[:1] != "<" or bare[-1:] != ">":
        return [line]
    return [f"{name}: {piece}" if name in _OF_XML else piece for name, piece in _between_tags(bare) if piece.strip()]


def _between_tags(line: str) -> Iterator[tuple[str, str]]:
    """(name, text) of the texts between tags, and of attributes.

    One at a time: a split of some MB holds up the server's other threads.
    """
    at, name = 0, ""
    for tag in _TAG.finditer(line):
        yield name, line[at : tag.start()]
        name = "" if tag[0][1] == "/" else tag[0].strip("</>").partition(" ")[0]
        yield from _ATTRIBUTE.findall(tag[0])
        at = tag.end()
    yield "", line[at:]


def _of_row(line: str) -> Iterator[str]:
    """The paths in the first cell of a table's row that has some; those of all cells if none has anything else."""
    cells = [cell for cell in line.strip().strip("|").split("|") if cell.strip()]
    if all(_like_path(_bare(cell)) for cell in cells):
        yield from cells
    else:
        yield from _of_line(next((cell for cell in cells if all(map(_like_path, map(_bare, _of_line(cell))))), ""))


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
    if not line.strip():
        return
    if (labelled := _LABELLED.fullmatch(unbulleted(line))) is not None:
        if not labelled["file"] or not labelled["value"]:
            return
        line = labelled["value"]
    if len(linked := links(line)) > 1:
        yield from linked
        return
    quoted = _QUOTED.findall(line)
    if len(quoted) > 1:
        yield from ("".join(groups) for groups in quoted)
        return
    pieces = [piece.strip() for piece in _BETWEEN.split(line)]
    words = unbulleted(line).split()
    if len(pieces) > 1 and all(_like_path(piece) for piece in pieces if piece):
        yield from filter(None, pieces)
    elif len(words) > 1 and all(map(_WORD.fullmatch, words)):
        yield from words
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
    if (bold := _BOLD.fullmatch(text)) is not None:
        text = bold[1]
    elif (remarked := _REMARKED.fullmatch(text)) is not None and not _ENDING.fullmatch(text):
        text = remarked[1]
    if (naming := _NAMING.fullmatch(text)) is not None:
        text = naming[1]
    if text.startswith("<") and text.endswith(">") and "</" in text:
        text = text[text.find(">") + 1 : text.rfind("</")].strip()  # <file>src/a.py</file>
    if text[:1] == '"' and "\\" in text and (closing := text.rfind('"')) > 0:
        text = _of_git(text[1:closing])
    elif text[:1] and text[0] in _QUOTES and (closing := text.find(text[0], 1)) > 0:
        text = text[1:closing]  # the rest is a remark
    text = text.strip(" \t,;").strip(_QUOTES).strip()
    return _AT_LINES.sub("", text).rstrip(":")


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
