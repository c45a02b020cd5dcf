"""Answers as text: lines `path.py`, `class: C`, `function: f`, usually in a fenced block."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from sandbox_server.grading.localization import references
from sandbox_server.grading.localization.locations import Locations, is_span
from sandbox_server.grading.localization.paths import untagged

_LABELS = {
    "answer": "answer",
    "final answer": "answer",
    "file": "file",
    "files": "file",
    "path": "file",
    "paths": "file",
    "class": "class",
    "classes": "class",
    "function": "function",
    "functions": "function",
    "method": "function",
    "methods": "function",
    "line": "line",
    "lines": "line",
    "\u6587\u4ef6": "file",
    "\u7c7b": "class",
    "\u51fd\u6570": "function",
    "\u65b9\u6cd5": "function",
}
"""In English and in Chinese, in which many policies write unless they are told not to."""
_BULLET = re.compile(r"[-*+•\s]*(?:[^\x00-\x7f\w\s]\ufe0f?\s+)?(?:\d{1,4}[.)]\s+)?")
_LABELLED = re.compile(
    rf"(?:(?:[-*+•]|\d{{1,4}}[.)])\s+)?\**({'|'.join(_LABELS)})(?:[\s_]?(?:path|name)s?)?\**\s*[:\uff1a]\**(.*)",
    re.IGNORECASE,
)
_PATH = re.compile(r"[^\s:#]*(?:\.[A-Za-z0-9_+-]+|/[^\s:#/]+)")
_COMMENT = re.compile(r"#\s|#+$|//\s|<!--")
_REMARK = re.compile(r"[(\[#\uff08\uff1a]|[-\u2013\u2014]+\s|//|<-|\u2190|[-=]>\s|\u2192")
_NAMED = re.compile(
    r"\s*(?:[-\u2013\u2014]+|[-=]>|\u2192)\s*\**(?:`([A-Za-z_][\w.]*)(?:\([^()`]*\))?`?|([A-Za-z_][\w.]*)\(\))\**"
)
"""A remark that is a name, marked as such by backticks or brackets."""
_NAME = re.compile(r"(?:(?:async\s+)?def\s+|class\s+|function\s+)?[^\s(]+(?:\(.*\))?:?")
_METHOD = re.compile(r"((?=[A-Z]\w*[a-z])\w++(?:\.[A-Za-z_]\w*+)*\.(\w+))(?:\([^()]*\))?(\s.*)?")
_ENDINGS = {"am", "c", "cc", "cfg", "cpp", "cs", "css", "csv", "go", "h", "html", "in", "ini", "java", "js", "json"}
_ENDINGS |= {"jsx", "kt", "lock", "md", "py", "pyi", "pyx", "rb", "rs", "rst", "sh", "swift", "toml", "ts", "tsx"}
_ENDINGS |= {"txt", "xml", "yaml", "yml"}
"""Endings of file names such as `Pipfile.lock`, which otherwise look like `Class.method`."""
_NONE = frozenset({"none", "null", "n/a", "na"})
"""Text of a table's cell that means "nothing"."""
_SEPARATORS = (",", "\t")
_COLUMN = re.compile(r"\w{1,30}")
_FENCES = ("```", "~~~")
_PROSE = ("markdown", "md")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    body: str
    closed: bool


def blocks(text: str) -> list[Block]:
    """The fenced blocks of `text`; the last may be unclosed. A text block that contains blocks is replaced by these."""
    found = []
    for block in _divided(text)[0]:
        nested = block.language in ("", *_PROSE) and block.body.lstrip().startswith(_FENCES)
        found += _divided(block.body)[0] if nested else [block]
    return found


def outside_blocks(text: str) -> str:
    """The lines outside the fenced blocks of `text`, with a fence in place of each block."""
    return "\n".join(_divided(text)[1])


def _divided(text: str) -> tuple[list[Block], list[str]]:
    """(the outermost blocks, the lines that `outside_blocks` joins)."""
    found: list[Block] = []
    outside: list[str] = []
    language: str | None = None
    fence = ""
    inside: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if language is not None:
            if language in _PROSE and not any(inside) and stripped == fence:
                language = ""  # the fence of the answer within
            elif stripped.startswith(fence):
                found.append(Block(language, "\n".join(inside), closed=stripped == fence))
                language = None
            elif stripped.endswith(fence):  # the fence stands at the end of the last line
                found.append(Block(language, "\n".join([*inside, line.rstrip().rstrip(fence[0])]), closed=True))
                language = None
            else:
                inside.append(line)
        elif not stripped.startswith(_FENCES):
            outside.append(line)
        else:
            outside.append(_FENCES[0])
            fence = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
            if len(stripped) > 2 * len(fence) and stripped.endswith(fence):
                found.append(Block("", stripped.strip(fence[0]), closed=True))  # a one-line block
            else:
                told = stripped.strip(fence[0]).strip()
                # no language has a name like a path, so this is the first line of the body
                language, inside = ("", [told]) if _PATH.fullmatch(told) else (told.lower(), [])
    if language is not None:
        found.append(Block(language, "\n".join(inside), closed=False))
    return found, outside


def read_lines(text: str, into: Locations) -> bool:
    """Add the locations in the lines of a block; return whether any line names a file and was read entirely.

    A line may name a file alone, or a class alone. A function belongs to the class line above it, until a blank line or
    another file. A heading (`## src/a.py`) names the file of the lines below it, where `Foo.bar` is a method. Comments
    and titles are skipped; any other line is a problem.
    """
    lines, clean = _Lines(into), False
    for line in into.while_room(chain.from_iterable(map(untagged, text.splitlines()))):
        clean = lines.read(line.strip()) or clean
    return clean


class _Lines:
    """Reads lines one after another; what a line means depends on those above it."""

    def __init__(self, into: Locations) -> None:
        self._into = into
        self._path = self._in_class = ""
        self._titled = ""
        """The file of the heading above."""
        self._listed = ""
        """The label of the list to which the line above belongs; "" for none."""
        self._separator = ""
        self._columns: list[str] = []
        """Column labels of the table to which the line above belongs."""

    def read(self, line: str) -> bool:
        """Add the locations in `line` (stripped); return whether it names a file and was read entirely."""
        listed, self._listed = self._listed, ""
        if cells := self._cells(line):
            return _row(self._columns, cells, self._into)
        if not line:
            self._in_class, self._listed = "", listed
            return False
        if (labelled := _LABELLED.fullmatch(line)) is not None:
            return self._labelled(labelled[1].lower(), labelled[2])
        if listed and self._path and (item := _item(line)):
            self._listed = listed
            self._path, self._in_class = _labelled(listed, item, self._path, self._in_class, self._into)
            return False
        return self._unlabelled(line)

    def _cells(self, line: str) -> list[str]:
        """The cells of a table's row; [] for any other line, and for a row with bars outside of a known table."""
        self._separator = _separator(line, self._separator)
        cells = _split(line, self._separator)
        self._columns = _columns(cells) or (self._columns if cells else [])
        return cells if self._columns else []

    def _labelled(self, label: str, value: str) -> bool:
        kind = _LABELS[label]
        if label.endswith("s") and kind in ("class", "function", "line") and not value.strip("* "):
            self._listed = kind  # the lines below are its values
        else:
            self._path, self._in_class = _labelled(kind, value, self._path, self._in_class, self._into)
        return bool(self._path)

    def _unlabelled(self, line: str) -> bool:
        if (headed := references.heading(line)) is not None and headed[0] > 1:
            self._path = self._titled = _headed(headed[1], self._into)
            self._in_class = ""
        elif self._path and self._path == self._titled and (method := _method(line)):
            self._into.entity(self._path, method)
        elif not _COMMENT.match(line):
            found, whole = _file_line(line, self._into)
            if found:
                self._path, self._in_class = found, ""
                return whole
        return False


def has_labelled_names(text: str) -> bool:
    """Whether a line of `text` is a labelled class or function, or the head of a table that has a column of them."""
    for line in map(str.strip, text.splitlines()):
        labelled = _LABELLED.fullmatch(line)
        labels = [_LABELS[labelled[1].lower()]] if labelled else _columns(line.strip("|").split("|"))
        if "class" in labels or "function" in labels:
            return True
    return False


def _item(line: str) -> str:
    """The name in an item of a list below `functions:`; "" for any other line, also for a path."""
    name = _BULLET.sub("", line, count=1)
    path = "/" in name or name.strip("` ").rpartition(".")[2] in _ENDINGS
    return "" if name == line or path else name


def _separator(line: str, current: str) -> str:
    """The separator of a table's row, "" for any other line; `current`: the separator of the row above.

    A table without bars (CSV, TSV) begins with a head: names of columns, one of them for files, and nothing else.
    """
    if line.startswith("|"):
        return "|"
    for separator in _SEPARATORS:
        names = [name.strip('"') for name in line.split(separator)]
        if len(names) > 1 and all(map(_COLUMN.fullmatch, names)) and _columns(names):
            return separator
    return current if current in _SEPARATORS and current in line else ""


def _split(line: str, separator: str) -> list[str]:
    if separator in _SEPARATORS:
        try:
            return next(csv.reader([line], delimiter=separator, skipinitialspace=True))
        except csv.Error:  # a cell of more than 128 KB
            return []
    return line.strip("|").split("|") if separator else []


def _columns(cells: Sequence[str]) -> list[str]:
    """The labels of a table's columns, "" for an unknown one; [] if the row is not the head of a table of files."""
    heads = [_LABELLED.fullmatch(f"{cell.strip(' *`')}:") for cell in cells]
    labels = [_LABELS[head[1].lower()] if head and not head[2] else "" for head in heads]
    return labels if "file" in labels else []


def _row(columns: Sequence[str], cells: Sequence[str], into: Locations) -> bool:
    """Add the locations in a table's row; return whether it names a file. A table's head and rule name none."""
    path = in_class = ""
    for label in ("file", "class", "function", "line"):
        for column, cell in zip(columns, cells, strict=False):
            text = cell.strip(" *`")
            if column != label or not any(map(str.isalnum, text)) or text.lower() in _NONE:
                continue
            if label == "file" and not _PATH.fullmatch(references.split_lines(references.unlinked(text))[0]):
                if not _columns(cells):
                    into.problem(f"no location: {text[:80]}")
                return False
            path, in_class = _labelled(label, text, path, in_class, into)
    return bool(path)


def _headed(text: str, into: Locations) -> str:
    """Add the file that a heading names and return its path; "" for a title."""
    return _file_line(text, into)[0] if text else ""


def _method(line: str) -> str:
    """The `Foo.bar` of a line below a heading, without a remark after it; "" for any other line."""
    found = _METHOD.fullmatch(_BULLET.sub("", line, count=1).replace("`", "").replace("**", "").strip())
    if found is None or found[2] in _ENDINGS or (found[3] and not _REMARK.match(found[3].strip())):
        return ""
    return found[1]


def _labelled(label: str, text: str, path: str, in_class: str, into: Locations) -> tuple[str, str]:
    """Add the value after a label; returns the file and class for the next lines."""
    if label == "answer":
        named = [value for value in _values(text) if value.strip()]
        if not all(_PATH.fullmatch(value.strip(" `*\"'")) for value in named):
            into.problem(f"no location: {text[:80]}")
            return path, in_class
        label = "file"
    if label != "file" and not path:
        into.problem(f"{label} before any file")
        return "", ""
    if label == "file" and not text.strip():
        return "", ""  # a title
    for value in _values(text):
        if label == "file" and path and references.only_lines(value):
            into.spelled_spans(path, value)
        elif label == "file":
            path, in_class = into.file(value), ""
        elif label == "class":
            in_class = into.module(path, value)
        elif label == "function":
            into.entity(path, value, of=in_class)
        else:
            into.spelled_span(path, value.strip(" `"))
    return path, in_class


def _values(text: str) -> Iterator[str]:
    """The list after a label, split at commas outside brackets."""
    depth = begin = 0
    for place, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth <= 0:
            yield text[begin:place]
            begin = place + 1
    if begin == 0 or text[begin:].strip():
        yield text[begin:]


def _file_line(line: str, into: Locations) -> tuple[str, bool]:
    """Add the location in a line without a label: `a.py`, `a.py:Foo.bar`, `a.py:10-19`, `a.py#L10`, `a.py (a remark)`.

    Returns its path ("" for prose), and whether the whole line was read.
    """
    plain = _BULLET.sub("", line, count=1).strip("`' \t,*")
    if plain.startswith('"'):  # git and JSON quote a path with unusual characters
        path = into.file(plain)
        return path, bool(path)
    plain = references.unlinked(plain)
    place = _PATH.match(plain)
    if place is None:
        into.problem(f"no location: {line[:80]}")
        return "", False
    lines, rest = references.lines_behind(_half_width(plain[place.end() :].lstrip("`'\"*")))
    if not (rest[:1] in ("", ":", "#") or (rest[0] in " \t" and _REMARK.match(rest.strip()))) or (
        lines and rest[:1] in (":", "#")  # an error message of a shell
    ):
        into.problem(f"no location: {line[:80]}")
        return "", False
    path = into.file(place[0])
    if path:
        _beside(path, lines, rest, into)
    if not path or rest[:1] in ("", " ", "\t"):
        return path, bool(path)
    spelled, _, remark = rest.partition(" ")
    if remark and is_span(spelled.strip(":#")) and _remarked(spelled, remark):
        rest = spelled
    named = rest.strip(":# ")
    if is_span(named):
        into.spelled_span(path, named)
    elif named and rest[0] == ":" and _NAME.fullmatch(named):
        into.entity(path, named)
    elif named:
        into.problem(f"not read: {line[:80]}")
        return path, not named[0].isdigit()  # `a.py:10: text` is the output of a search
    return path, True


def _beside(path: str, lines: str, rest: str, into: Locations) -> None:
    """Add the lines behind a path, and a name that is marked as one."""
    if lines:
        into.spelled_spans(path, lines)
    if (marked := _NAMED.fullmatch(rest)) is not None:
        into.entity(path, marked[1] or marked[2])


def _half_width(rest: str) -> str:
    """`rest`, which follows a path, with a full-width colon or bracket at its start replaced by the ASCII one."""
    return rest.replace("\uff1a", ":", 1) if rest[:1] == "\uff1a" else re.sub("^\uff08", " (", rest)


def _remarked(spelled: str, remark: str) -> bool:
    """Whether `remark` comments on the lines before it; False for `a.py:10: text`, which is the output of a search."""
    return spelled[0] == "#" or (not spelled.endswith(":") and _REMARK.match(remark.strip()) is not None)
