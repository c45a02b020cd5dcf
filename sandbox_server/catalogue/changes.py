"""A patch as changes of files: paths, kind of change, and the lines of both sides. Pure.

Headers are read by `catalogue.diff`, hunks by unidiff.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchSet

from sandbox_server.catalogue.diff import FileSection, file_sections, without_prefix

_MNEMONIC = re.compile(r"[abciow12]/")
"""Prefixes that git writes before names: a/ b/, c/ i/ o/ w/ with diff.mnemonicPrefix, 1/ 2/ with --no-index."""

_MOST_LINES = 10**9
_ENOUGH_LINES = 4  # fewer lines are not distinctive enough to be searched away from the stated position


class UnreadablePatch(ValueError):
    """The text is not a unified diff, or contradicts itself; the message says where."""


class DoesNotApply(ValueError):
    """The file is not the one the patch was made from; the message names the line."""


@dataclass(frozen=True, slots=True)
class Block:
    """Changed lines with no context line between them."""

    after: int
    """Number of the last old line before the block, 1-based; 0 if the block begins the file."""
    removed: tuple[str, ...]
    new_after: int
    """Number of the last new line before the block."""
    added: tuple[str, ...]

    @property
    def span(self) -> tuple[int, int]:
        """First and last old line; for a pure insertion the lines before and after it, even if they do not exist."""
        if self.removed:
            return self.after + 1, self.after + len(self.removed)
        return self.after, self.after + 1

    @property
    def old_lines(self) -> range:
        """Numbers of the removed lines."""
        return range(self.after + 1, self.after + 1 + len(self.removed))

    @property
    def new_lines(self) -> range:
        """Numbers of the added lines."""
        return range(self.new_after + 1, self.new_after + 1 + len(self.added))


@dataclass(frozen=True, slots=True)
class FileHunk:
    """Changed lines with their context."""

    old: tuple[int, int]
    """Start and count on the old side; with a count of 0 the start is the line before."""
    new: tuple[int, int]
    """The same on the new side, computed: if hunks were removed from a patch, its own numbers are wrong."""
    blocks: tuple[Block, ...]
    before: tuple[str, ...]
    """Lines of the old side."""
    after: tuple[str, ...]
    """Lines of the new side."""

    def reversed(self) -> "FileHunk":
        """The hunk that undoes this one."""
        blocks = tuple(Block(it.new_after, it.added, it.after, it.removed) for it in self.blocks)
        return FileHunk(self.new, self.old, blocks, self.after, self.before)

    def moved(self, lines: int) -> "FileHunk":
        """The hunk shifted down by `lines` on both sides."""
        blocks = tuple(Block(it.after + lines, it.removed, it.new_after + lines, it.added) for it in self.blocks)
        old, new = ((start + lines, count) for start, count in (self.old, self.new))
        return replace(self, old=old, new=new, blocks=blocks)


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file's part of a patch. Paths may hold lone surrogates for bytes that are not UTF-8."""

    old: str | None
    """Path before; None: the patch creates the file (a copy is created too)."""
    new: str | None
    """Path after; None: the patch deletes the file."""
    hunks: tuple[FileHunk, ...]
    opaque: bool
    """Binary or a submodule: it has no lines."""

    @property
    def blocks(self) -> list[Block]:
        """Blocks of all hunks, in order."""
        return [block for hunk in self.hunks for block in hunk.blocks]

    @property
    def idle(self) -> bool:
        """Whether an existing file changes neither lines nor name: a new mode only, or not text."""
        return self.old is not None and (self.opaque or (self.old == self.new and not self.blocks))

    def reversed(self) -> "FileChange":
        """The change that undoes this one."""
        return FileChange(self.new, self.old, tuple(hunk.reversed() for hunk in self.hunks), self.opaque)


def read_changes(patch: str) -> tuple[FileChange, ...]:
    """The changes of a unified diff (git's or plain), in order; () for a blank text.

    Raises:
        UnreadablePatch: it is not blank, and no unified diff that a program could apply.

    """
    raw = patch.encode("utf-8", "surrogatepass")
    sections = _sections(raw)
    if patch.strip() and not sections:
        raise UnreadablePatch("there is no file in it")
    return tuple(_change(section) for section in sections)


def _sections(patch: bytes) -> Sequence[FileSection]:
    """Sections by -p1; by -p0 if the names have no prefix to remove."""
    bare = file_sections(patch, strip=lambda name: name)
    if any(_MNEMONIC.match(path) for section in bare for path in section.paths):
        return file_sections(patch)
    if not all(section.paths for section in bare):
        return file_sections(patch)  # `diff --git a/x b/x` alone names one file only without its prefixes
    for section in bare:
        pair = [path for side in (section.old, section.new) for path in side]
        if len(set(pair)) == 2 and len({without_prefix(path.encode("utf-8", "surrogateescape")) for path in pair}) == 1:
            return file_sections(patch)  # plain `diff -r old new`
    return bare


def _change(section: FileSection) -> FileChange:
    old, new = (_only(side) for side in (section.old, section.new))
    if old is None and new is None:
        raise UnreadablePatch("a file's header lines name no file")
    opaque = not section.marks.isdisjoint({"binary", "submodule"})
    try:
        hunks = () if opaque else _hunks(section)
    except UnreadablePatch as error:
        raise UnreadablePatch(f"{old or new!r}: {error}") from None
    return FileChange(None if "copy" in section.marks else old, new, hunks, opaque)


def _only(paths: frozenset[str]) -> str | None:
    if len(paths) > 1:
        raise UnreadablePatch(f"header lines disagree on a file's name: {', '.join(sorted(map(repr, paths)))}")
    path = next(iter(paths), None)
    if path is None:
        return None
    if path in (".", "..", "") or path.startswith(("/", "../")) or "\0" in path:
        raise UnreadablePatch(f"{path!r} is not a path in a repository")
    return path


def _hunks(section: FileSection) -> tuple[FileHunk, ...]:
    if section.hunks_at is None:
        return ()
    text = section.text[section.hunks_at :].decode("utf-8", "surrogateescape")
    try:
        read = PatchSet("--- a/file\n+++ b/file\n" + text)[0]
    except (UnidiffParseError, ValueError) as error:  # ValueError: a number with more digits than Python parses
        raise UnreadablePatch(str(error).strip()[:200]) from None
    hunks: list[FileHunk] = []
    end = grown = 0
    for hunk in read:
        # the start of an empty side is the line before the hunk, not its first line
        start = hunk.source_start - (hunk.source_length > 0)
        if not 0 <= start < _MOST_LINES:
            raise UnreadablePatch(f"no file has a line {hunk.source_start}")
        if start < end:
            raise UnreadablePatch(f"the hunk at line {hunk.source_start} begins before the one above it ends")
        hunks.append(_hunk(hunk, start, start + grown))
        end = start + hunk.source_length
        grown += hunk.target_length - hunk.source_length
    return tuple(hunks)


def _hunk(hunk: Hunk, old: int, new: int) -> FileHunk:
    """`old` and `new` are the numbers of lines before the hunk."""
    sides = (old + (hunk.source_length > 0), hunk.source_length), (new + (hunk.target_length > 0), hunk.target_length)
    blocks: list[Block] = []
    removed: list[str] = []
    added: list[str] = []
    for line in [*hunk, None]:
        if line is not None and line.is_removed:
            removed.append(line.value)
        elif line is not None and line.is_added:
            added.append(line.value)
        elif line is None or line.is_context:
            if removed or added:
                blocks.append(Block(old, tuple(removed), new, tuple(added)))
                old, new = old + len(removed), new + len(added)
                removed, added = [], []
            old, new = old + 1, new + 1
    return FileHunk(
        *sides,
        tuple(blocks),
        tuple(line.value for line in hunk if line.is_removed or line.is_context),
        tuple(line.value for line in hunk if line.is_added or line.is_context),
    )


def located(change: FileChange, text: bytes) -> FileChange:
    """The change moved to where it fits `text`, which may be off the patch's own numbers, as `git apply` accepts it.

    Line ends are ignored, and a replacement character (U+FFFD) matches any character.

    Raises:
        DoesNotApply: `text` is not the file that the patch was made from.

    """
    lines = _lines(text)
    hunks: list[FileHunk] = []
    off = end = 0
    for hunk in change.hunks:
        start, count = hunk.old
        first = start - (count > 0) + off
        found = next((at for at in _places(first, end, len(lines) - count) if _fits(lines, at, hunk.before)), None)
        if found is None or (found != first and count < _ENOUGH_LINES):
            raise DoesNotApply(_misfit(lines, hunk))
        off += found - first
        end = found + count
        hunks.append(hunk.moved(off))
    return replace(change, hunks=tuple(hunks))


def _places(first: int, least: int, most: int) -> Iterator[int]:
    """Numbers from `least` to `most`, ordered by distance from `first`."""
    if least <= first <= most:
        yield first  # fits nearly always
    yield from sorted(range(least, most + 1), key=lambda at: abs(at - first))


def _fits(lines: Sequence[bytes], at: int, wanted: Sequence[str]) -> bool:
    return all(_same(there, line) for there, line in zip(lines[at : at + len(wanted)], wanted, strict=True))


def _same(there: bytes, wanted: str) -> bool:
    there, wanted = there.rstrip(b"\r\n"), wanted.rstrip("\r\n")
    if there == wanted.encode("utf-8", "surrogateescape"):
        return True
    return "\ufffd" in wanted and there.decode("utf-8", "replace") == wanted


def _misfit(lines: Sequence[bytes], hunk: FileHunk) -> str:
    for number, wanted in enumerate(hunk.before, start=hunk.old[0]):
        if number > len(lines):
            break
        if not _same(lines[number - 1], wanted):
            return f"line {number} is not what the patch says"
    return f"the patch speaks of line {sum(hunk.old) - 1}, the file ends with line {len(lines)}"


def applied(change: FileChange, text: bytes) -> bytes:
    """`text` after applying a change from `located`."""
    lines = _lines(text)
    after: list[bytes] = []
    done = 0
    for block in change.blocks:
        after += lines[done : block.after]
        after += [line.removesuffix("\n").encode("utf-8", "surrogateescape") for line in block.added]
        done = block.after + len(block.removed)
    return b"".join(line + b"\n" for line in [*after, *lines[done:]])


def _lines(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines
