"""A patch as changes of files: which, how, and the lines of both sides. Pure.

Headers are read by `catalogue.diff`, hunks by unidiff.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchSet

from sandbox_server.catalogue.diff import FileSection, file_sections, without_prefix

_MNEMONIC = re.compile(r"[abciow12]/")
"""What git writes before a name: a/ b/, or by diff.mnemonicPrefix c/ i/ o/ w/, or by --no-index 1/ 2/."""

_MOST_LINES = 10**9
_ENOUGH_LINES = 4  # fewer say too little to be looked for elsewhere than where the patch says


class UnreadablePatch(ValueError):
    """The text is no unified diff, or one that contradicts itself; the message says where."""


class DoesNotApply(ValueError):
    """The file is not what the patch was made from; the message says which line."""


@dataclass(frozen=True, slots=True)
class Block:
    """Changed lines without a line of context between them."""

    after: int
    """The last old line before the block, from 1; 0: it begins the file."""
    removed: tuple[str, ...]
    new_after: int
    """The same on the new side."""
    added: tuple[str, ...]

    @property
    def span(self) -> tuple[int, int]:
        """Old lines, both ends in; of a pure insertion the line before and the one after it, were there such or not."""
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
    """Changed lines and those around them."""

    old: tuple[int, int]
    """Start and count of the old side; with a count of 0 the start is the line before."""
    new: tuple[int, int]
    """The same of the new side, counted: where single hunks were taken out of a patch, what it says is off."""
    blocks: tuple[Block, ...]
    before: tuple[str, ...]
    """The old side's lines."""
    after: tuple[str, ...]
    """The new side's."""

    def reversed(self) -> "FileHunk":
        """What takes it back."""
        blocks = tuple(Block(it.new_after, it.added, it.after, it.removed) for it in self.blocks)
        return FileHunk(self.new, self.old, blocks, self.after, self.before)

    def moved(self, lines: int) -> "FileHunk":
        """The same so many lines further down, on both sides."""
        blocks = tuple(Block(it.after + lines, it.removed, it.new_after + lines, it.added) for it in self.blocks)
        old, new = ((start + lines, count) for start, count in (self.old, self.new))
        return replace(self, old=old, new=new, blocks=blocks)


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file's part of a patch; a path may hold lone surrogates where git named bytes that are no UTF-8."""

    old: str | None
    """Its path before; None: the patch makes it (a copy is made, too)."""
    new: str | None
    """Its path after; None: the patch deletes it."""
    hunks: tuple[FileHunk, ...]
    opaque: bool
    """Binary, or a submodule: there are no lines to speak of."""

    @property
    def blocks(self) -> list[Block]:
        """Of all hunks, in order."""
        return [block for hunk in self.hunks for block in hunk.blocks]

    @property
    def idle(self) -> bool:
        """It is there before, and no line or name of it changes: a new mode, or what is no text."""
        return self.old is not None and (self.opaque or (self.old == self.new and not self.blocks))

    def reversed(self) -> "FileChange":
        """What takes it back."""
        return FileChange(self.new, self.old, tuple(hunk.reversed() for hunk in self.hunks), self.opaque)


def read_changes(patch: str) -> tuple[FileChange, ...]:
    """The changes of a unified diff, git's or plain, in its order; none for a blank text.

    Raises:
        UnreadablePatch: it is not blank and no unified diff that a program could apply.

    """
    raw = patch.encode("utf-8", "surrogatepass")
    sections = _sections(raw)
    if patch.strip() and not sections:
        raise UnreadablePatch("there is no file in it")
    return tuple(_change(section) for section in sections)


def _sections(patch: bytes) -> Sequence[FileSection]:
    """By -p1; by -p0 where the names bear no prefix that could come off."""
    bare = file_sections(patch, strip=lambda name: name)
    if any(_MNEMONIC.match(path) for section in bare for path in section.paths):
        return file_sections(patch)
    if not all(section.paths for section in bare):
        return file_sections(patch)  # `diff --git a/x b/x` and no more names one file only without its prefixes
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
        raise UnreadablePatch(f"{path!r} is no path in a repository")
    return path


def _hunks(section: FileSection) -> tuple[FileHunk, ...]:
    if section.hunks_at is None:
        return ()
    text = section.text[section.hunks_at :].decode("utf-8", "surrogateescape")
    try:
        read = PatchSet("--- a/file\n+++ b/file\n" + text)[0]
    except (UnidiffParseError, ValueError) as error:  # ValueError: a number of more digits than Python reads
        raise UnreadablePatch(str(error).strip()[:200]) from None
    hunks: list[FileHunk] = []
    end = grown = 0
    for hunk in read:
        # an empty side's start is the line before the hunk, not the first of it
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
    """`old` and `new` are the lines before it."""
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
    """The change where it belongs in `text`, which may be some lines off what the patch says, as `git apply` takes it.

    Line ends do not count, and a character that was lost on the way (U+FFFD) stands for any.

    Raises:
        DoesNotApply: `text` is not what the patch was made from.

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
    """Numbers from `least` to `most`, by how near they are to `first`."""
    if least <= first <= most:
        yield first  # nearly always the one
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
    """`text` after a change that `located` placed in it."""
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
