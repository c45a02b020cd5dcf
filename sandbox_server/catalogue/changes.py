"""A patch as changes of files: which, how, and the lines of both sides. Pure.

Headers are read by `catalogue.diff`, hunks by unidiff.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchSet

from sandbox_server.catalogue.diff import FileSection, file_sections, without_prefix

_MNEMONIC = re.compile(r"[abciow12]/")
"""What git writes before a name: a/ b/, or by diff.mnemonicPrefix c/ i/ o/ w/, or by --no-index 1/ 2/."""

_MOST_LINES = 10**9


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

    def reversed(self) -> "Block":
        """What takes it back."""
        return Block(self.new_after, self.added, self.after, self.removed)


@dataclass(frozen=True, slots=True)
class Kept:
    """An unchanged line that a hunk shows, with its number on either side."""

    old: int
    new: int
    text: str


@dataclass(frozen=True, slots=True)
class HunkRange:
    """A hunk's header: start and count of each side, as written."""

    old: tuple[int, int]
    new: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file's part of a patch; a path may hold lone surrogates where git named bytes that are no UTF-8."""

    old: str | None
    """Its path before; None: the patch makes it (a copy is made, too)."""
    new: str | None
    """Its path after; None: the patch deletes it."""
    hunks: tuple[HunkRange, ...]
    blocks: tuple[Block, ...]
    context: tuple[Kept, ...]
    """What the file must hold besides the removed lines."""
    opaque: bool
    """Binary, or a submodule: there are no lines to speak of."""

    @property
    def idle(self) -> bool:
        """It is there before, and no line or name of it changes: a new mode, or what is no text."""
        return self.old is not None and (self.opaque or (self.old == self.new and not self.blocks))

    def reversed(self) -> "FileChange":
        """What takes it back."""
        return FileChange(
            old=self.new,
            new=self.old,
            hunks=tuple(HunkRange(hunk.new, hunk.old) for hunk in self.hunks),
            blocks=tuple(block.reversed() for block in self.blocks),
            context=tuple(Kept(line.new, line.old, line.text) for line in self.context),
            opaque=self.opaque,
        )


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
    hunks = [] if opaque else _hunks(section)
    try:
        blocks, context = _walk(hunks)
    except UnreadablePatch as error:
        raise UnreadablePatch(f"{old or new!r}: {error}") from None
    return FileChange(
        old=None if "copy" in section.marks else old,
        new=new,
        hunks=tuple(
            HunkRange((hunk.source_start, hunk.source_length), (hunk.target_start, hunk.target_length))
            for hunk in hunks
        ),
        blocks=blocks,
        context=context,
        opaque=opaque,
    )


def _only(paths: frozenset[str]) -> str | None:
    if len(paths) > 1:
        raise UnreadablePatch(f"header lines disagree on a file's name: {', '.join(sorted(map(repr, paths)))}")
    path = next(iter(paths), None)
    if path is None:
        return None
    if path in (".", "") or path.startswith(("/", "../")) or path == ".." or "\0" in path:
        raise UnreadablePatch(f"{path!r} is no path in a repository")
    return path


def _hunks(section: FileSection) -> list[Hunk]:
    if section.hunks_at is None:
        return []
    text = section.text[section.hunks_at :].decode("utf-8", "surrogateescape")
    try:
        files = PatchSet("--- a/file\n+++ b/file\n" + text)
    except (UnidiffParseError, ValueError) as error:  # ValueError: a number of more digits than Python reads
        where = next(iter(section.paths), "?")
        raise UnreadablePatch(f"{where!r}: {str(error).strip()[:200]}") from None
    return list(files[0])


def _walk(hunks: Sequence[Hunk]) -> tuple[tuple[Block, ...], tuple[Kept, ...]]:
    """Numbers of the new side are counted, not read: where single hunks were taken out of a patch its own are off."""
    blocks: list[Block] = []
    context: list[Kept] = []
    old = grown = 0
    for hunk in hunks:
        # an empty side's start is the line before the hunk, not the first of it
        start = hunk.source_start - (hunk.source_length > 0)
        if not 0 <= start < _MOST_LINES:
            raise UnreadablePatch(f"no file has a line {hunk.source_start}")
        if start < old:
            raise UnreadablePatch(f"the hunk at line {hunk.source_start} begins before the one above it ends")
        old = start
        removed: list[str] = []
        added: list[str] = []
        for line in [*hunk, None]:
            if line is not None and line.is_removed:
                removed.append(line.value)
            elif line is not None and line.is_added:
                added.append(line.value)
            elif line is None or line.is_context:
                if removed or added:
                    blocks.append(Block(old, tuple(removed), old + grown, tuple(added)))
                    old += len(removed)
                    grown += len(added) - len(removed)
                    removed, added = [], []
                if line is not None:
                    old += 1
                    context.append(Kept(old, old + grown, line.value))
    return tuple(blocks), tuple(context)


def apply_change(change: FileChange, before: bytes) -> bytes:
    """The file's text after the change.

    Line ends do not count, and a character that was lost on the way (U+FFFD) stands for any.

    Raises:
        DoesNotApply: `before` is not what the patch was made from.

    """
    lines = before.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for line in change.context:
        _check(lines, line.old, line.text)
    after: list[bytes] = []
    done = 0
    for block in change.blocks:
        if block.after > len(lines):
            raise DoesNotApply(f"the patch speaks of line {block.after}, the file ends with line {len(lines)}")
        after += lines[done : block.after]
        for number, text in zip(block.old_lines, block.removed, strict=True):
            _check(lines, number, text)
        after += [line.removesuffix("\n").encode("utf-8", "surrogateescape") for line in block.added]
        done = block.after + len(block.removed)
    return b"".join(line + b"\n" for line in [*after, *lines[done:]])


def _check(lines: Sequence[bytes], number: int, text: str) -> None:
    if number > len(lines):
        raise DoesNotApply(f"the patch speaks of line {number}, the file ends with line {len(lines)}")
    there = lines[number - 1].rstrip(b"\r\n")
    wanted = text.rstrip("\r\n")
    if there != wanted.encode("utf-8", "surrogateescape") and there.decode("utf-8", "replace") != wanted:
        raise DoesNotApply(f"line {number} is not what the patch says")
