"""Splits a patch (git's or plain unified diff) by file and reads which paths each section touches.

Known limits: context, ed and `Index:` diffs have no section here; the service's own captures are never of these kinds.
"""

import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

_NO_BODY = re.compile(rb"^[^ \-+\\\r\n]", re.MULTILINE)  # no line in a hunk begins with such a character
_HUNK = re.compile(rb"@@ -\d{1,18}(?:,(\d{1,18}))? \+\d{1,18}(?:,(\d{1,18}))? @@")
_MOVED = re.compile(rb"(rename|copy) (from|to) ")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_MODE = re.compile(rb"(?:index [0-9a-f]+\.\.[0-9a-f]+|(?:new|deleted) file mode|old mode|new mode) (120|160)000\s*$")
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_Strip = Callable[[bytes], bytes]
_KEPT_BYTES = 4 << 20  # a larger patch is read anew each time


@dataclass(frozen=True, slots=True)
class FileSection:
    """One file's part of a patch; the joined texts of all sections are the patch."""

    text: bytes
    old: frozenset[str]
    """Paths that header lines name as the old file: usually one; empty for a new file."""
    new: frozenset[str]
    """Paths that header lines name as the new file; empty for a deleted file."""
    marks: frozenset[str] = frozenset()
    """Those of `copy`, `rename`, `binary`, `link`, `submodule` that header lines state."""
    hunks_at: int | None = None
    """Offset of the first hunk in `text`; None: there is none."""

    @property
    def paths(self) -> frozenset[str]:
        """All paths in the section's headers, even if they disagree."""
        return self.old | self.new

    @property
    def created(self) -> frozenset[str]:
        """Paths that did not exist before: new files, targets of renames and copies."""
        return self.new - self.old


@dataclass(slots=True)
class _Open:
    named: bytes = b""
    """The `diff --git` line; read only if no other line names the file."""
    old: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)
    has_body: bool = False
    creates: bool = False
    deletes: bool = False
    marks: set[str] = field(default_factory=set)
    hunks_at: int | None = None

    def close(self, patch: bytes, end: int, start: int, strip: _Strip) -> FileSection:
        if not self.old and not self.new and (name := _same_name(self.named, strip)):
            self.old, self.new = {name}, {name}
        old = frozenset() if self.creates else frozenset(self.old)
        new = frozenset() if self.deletes else frozenset(self.new)
        hunks_at = None if self.hunks_at is None else self.hunks_at - start
        return FileSection(patch[start:end], old, new, frozenset(self.marks), hunks_at)


def without_prefix(name: bytes) -> bytes:
    """Strip the prefix as `-p1` does: a/, b/, or any other first folder."""
    return name.partition(b"/")[2] or name


def file_sections(patch: bytes, *, strip: _Strip = without_prefix) -> tuple[FileSection, ...]:
    """Split `patch` by file, in order; text before the first file belongs to it. Never raises; linear time.

    `strip` removes the prefix from names in `---`, `+++` and `diff --git` lines.
    """
    return (_kept if len(patch) <= _KEPT_BYTES else _sections)(patch, strip)


def touched_paths(patch: bytes) -> frozenset[str]:
    """All paths named in any section."""
    return _union(section.paths for section in file_sections(patch))


def created_paths(patch: bytes) -> frozenset[str]:
    """All paths that the patch creates."""
    return _union(section.created for section in file_sections(patch))


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


class _Hunk:
    """Skips the lines of a hunk, so that its content is not read as headers."""

    def __init__(self) -> None:
        self._old = self._new = 0

    def begins(self, line: bytes) -> bool:
        if counts := _HUNK.match(line):
            self._old, self._new = (int(group) if group is not None else 1 for group in counts.groups())
        return counts is not None

    def takes(self, line: bytes) -> bool:
        if self._old <= 0 and self._new <= 0:
            return False
        kind = line[:1]
        if kind not in b" -+\\\r\n":
            self._old = self._new = 0  # the counts were wrong: continue with headers
            return False
        self._old -= kind not in b"+\\"
        self._new -= kind not in b"-\\"
        return True

    def skip(self, patch: bytes, at: int) -> int:
        """The position to read on from after a hunk's header: the end of the hunk if its counts are right, else `at`.

        Equivalent to `takes` on each line, which would take seconds for a patch of a million lines.
        """
        found = _NO_BODY.search(patch, at)
        end = found.start() if found else len(patch)
        before = at - 1  # the header's line break
        added, removed, others = (patch.count(kind, before, end) for kind in (b"\n+", b"\n-", b"\n\\"))
        lines = patch.count(b"\n", at, end) + (end > at and patch[end - 1 : end] != b"\n")
        if lines - added - others > self._old or lines - removed - others > self._new:
            return at  # the lines of the hunk end earlier, or its counts are wrong
        self._old = self._new = 0
        return end


class _Sections:
    """Closes each section when the next one begins: with 100,000 open ones, garbage collections would take seconds."""

    def __init__(self, patch: bytes, strip: _Strip) -> None:
        self._patch = patch
        self._strip = strip
        self._start = 0
        self.open: _Open | None = None
        self.closed: list[FileSection] = []

    def begin(self, at: int, named: bytes = b"") -> _Open:
        self.end(at)
        self.open = _Open(named)
        return self.open

    def end(self, at: int) -> None:
        if self.open is not None:
            self.closed.append(self.open.close(self._patch, at, self._start, self._strip))
            self._start = at


def _sections(patch: bytes, strip: _Strip) -> tuple[FileSection, ...]:
    sections = _Sections(patch, strip)
    before: tuple[int, bytes] | None = None  # a `--- ` line that a `+++ ` line may follow
    hunk = _Hunk()
    at = 0
    while at < len(patch):
        start, at = at, patch.find(b"\n", at) + 1 or len(patch)
        line = patch[start:at]
        if hunk.takes(line):
            continue
        section = sections.open
        if line.startswith(b"diff --git "):
            sections.begin(start, line)
            before = None
        elif line.startswith(b"--- "):
            before = (start, line[4:])
        elif line.startswith(b"+++ ") and before:
            if section is None or section.has_body:  # a plain unified diff, in which the pair begins a file
                section = sections.begin(before[0])
            _add_pair(section, before[1], line[4:], strip)
            before = None
        elif section is not None:
            at = _read_other(section, patch, start, at, hunk)
    sections.end(len(patch))
    return tuple(sections.closed)


_kept = lru_cache(maxsize=4)(_sections)  # a grading reads its patch several times; one of 5,000 files takes 0.1 s


def _add_pair(section: _Open, old: bytes, new: bytes, strip: _Strip) -> None:
    section.has_body = True
    for raw, names in ((old, section.old), (new, section.new)):
        name = _name(raw)
        if name == b"/dev/null":
            continue
        names.add(_path(strip(name)))


def _read_other(section: _Open, patch: bytes, start: int, at: int, hunk: _Hunk) -> int:
    """Read the line from `start` to `at`, which is no `---`, `+++` or `diff --git` line; returns where to read on."""
    line = patch[start:at]
    if hunk.begins(line):
        if section.hunks_at is None:
            section.hunks_at = start
        return hunk.skip(patch, at)
    if not section.has_body:
        _read_extended(section, line)
    return at


def _read_extended(section: _Open, line: bytes) -> None:
    if moved := _MOVED.match(line):
        names = section.old if moved[2] == b"from" else section.new
        names.add(_path(_name(line[moved.end() :])))
        section.marks.add(moved[1].decode())
    section.creates |= line.startswith(b"new file mode ")
    section.deletes |= line.startswith(b"deleted file mode ")
    if line.startswith((b"Binary files ", b"GIT binary patch")):
        section.marks.add("binary")
    elif mode := _MODE.match(line):
        section.marks.add("link" if mode[1] == b"120" else "submodule")


def _name(raw: bytes) -> bytes:
    """A header's name: C-quoted, or up to the tab that ends a name with spaces (or begins a timestamp)."""
    if raw.startswith(b'"'):
        return _quoted(raw)[0]
    return raw.rstrip(b"\r\n").split(b"\t", 1)[0]


def _quoted(raw: bytes) -> tuple[bytes, bytes]:
    """The C-quoted name at the beginning of `raw`, and the rest."""
    match = re.match(rb'"((?:[^"\\]|\\.)*)"', raw, re.DOTALL)
    if not match:
        return raw.rstrip(b"\r\n"), b""
    return _ESCAPE.sub(_unescape, match.group(1)), raw[match.end() :]


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match.group(1)
    return bytes([int(code, 8) & 0xFF]) if code.isdigit() and code < b"8" else _ESCAPED.get(code, code)


def _same_name(line: bytes, strip: _Strip) -> str:
    """The name in `diff --git a/NAME b/NAME`, where NAME may hold spaces; "" if the halves differ."""
    rest = line.removeprefix(b"diff --git ").rstrip(b"\r\n")
    if rest.startswith(b'"'):
        first, after = _quoted(rest)
        second = _name(after.strip())
    else:
        middle = len(rest) // 2
        first, second = rest[:middle], rest[middle + 1 :]
    same = strip(first) == strip(second)
    return _path(strip(first)) if same and first else ""


def _path(name: bytes) -> str:
    return posixpath.normpath(name.decode("utf-8", "surrogateescape"))
