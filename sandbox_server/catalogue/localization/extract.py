"""Compute the truth from a patch and its base tree. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import cast

from sandbox_server.catalogue.changes import (
    DoesNotApply,
    FileChange,
    applied,
    located,
    read_changes,
)
from sandbox_server.catalogue.localization import languages
from sandbox_server.catalogue.localization.outline import Language, Names, NotOutlined, Outline
from sandbox_server.catalogue.localization.truth import Spans, Truth
from sandbox_server.plugins import discover

Tree = Callable[[str], bytes | None]
"""Returns a file of the base tree by path, None if it does not exist; e.g. `{...}.get`."""

NO_TREE = "the tree of the base commit is not there"
LEVELS = ("modules", "entities")

_UNREAD = re.compile(
    r"\.(c|cc|clj|cpp|cs|cu|cxx|dart|ex|exs|erl|f90|fs|groovy|h|hpp|hs|ipynb|jl|kt|kts|lua|m|ml|mm|nim|php|pl|pm"
    r"|pxd|pxi|pyx|r|rb|scala|sol|svelte|swift|vala|vb|vue|zig)"
)
"""Suffixes of source files that no reader here supports. Their functions are unknown, not absent."""


def languages_by_suffix() -> Mapping[str, Language]:
    """Suffix -> language that reads such files.

    Raises:
        RuntimeError: two languages take the same suffix.

    """
    found: dict[str, Language] = {}
    for name, language in discover(languages, "LANGUAGE").items():
        for suffix in cast(Language, language).suffixes:
            if suffix in found:
                raise RuntimeError(f"languages/{name}.py takes {suffix}, which another language has")
            found[suffix] = cast(Language, language)
    return found


_LANGUAGES = languages_by_suffix()


def truth_of(patch: str, tree: Tree | None = None, *, no_tree: str = NO_TREE, suffixes: Sequence[str] = ()) -> Truth:
    """The places that a gold patch for `tree` changes.

    Without a tree the truth has only files and lines; `no_tree` is the reason why modules and entities are unknown.
    `suffixes`, unless empty: only files with one of these endings have to be found; the others are neutral.

    Raises:
        UnreadablePatch: `patch` is no unified diff; the only error, whatever the text.

    """
    return _truth(read_changes(patch), tree, no_tree, suffixes)


def truth_of_bug(
    patch: str, tree: Tree | None = None, *, no_tree: str = NO_TREE, suffixes: Sequence[str] = ()
) -> Truth:
    """As `truth_of`, but `patch` adds the bug: the agent sees `tree` with the patch applied, and the fix reverts it.

    All paths and lines are therefore those of the patch's new side.

    Raises:
        UnreadablePatch: as `truth_of`.

    """
    changes = read_changes(patch)
    after = _after(changes, tree) if tree else None
    return _truth([change.reversed() for change in changes], after, no_tree, suffixes)


def is_asked(path: str, suffixes: Sequence[str]) -> bool:
    """Whether the file has to be found: it ends with one of `suffixes`, or `suffixes` is empty."""
    return not suffixes or path.endswith(tuple(suffixes))


def _after(changes: Sequence[FileChange], tree: Tree) -> Tree:
    """`tree` with the changes applied; a file to which they do not apply is missing."""
    made = {change.new: change for change in changes if change.new is not None}
    gone = {change.old for change in changes} - made.keys()

    def read(path: str) -> bytes | None:
        if path in gone:
            return None
        change = made.get(path)
        if change is None:
            return tree(path)
        before = b"" if change.old is None else tree(change.old)
        if before is None:
            return None
        try:
            return applied(located(change, before), before)
        except DoesNotApply:
            return None

    return read


def _truth(changes: Sequence[FileChange], tree: Tree | None, no_tree: str, suffixes: Sequence[str]) -> Truth:
    found = {_shown(change.old): change for change in changes if change.old is not None and not change.idle}
    left_out = {path for path in found if not is_asked(path, suffixes)}
    found = {path: change for path, change in found.items() if path not in left_out}
    texts = {path: tree(change.old) for path, change in found.items() if tree and change.old and change.blocks}
    for path, text in texts.items():
        if text is not None:
            with suppress(DoesNotApply):  # `_levels` reports it for source files
                found[path] = located(found[path], text)
    created = {_shown(change.new) for change in changes if change.new is not None and change.new != change.old}
    modules, entities, missing = _levels(found, texts, "" if tree else no_tree)
    counts = Counter(_shown(change.old) for change in changes if change.old is not None)
    twice = [path for path, count in counts.items() if count > 1 and path not in left_out]
    missing |= dict.fromkeys(twice, "the patch changes it in two places apart")
    whole = not missing
    return Truth(
        files=tuple(sorted(found)),
        modules=tuple(sorted(modules)) if whole else None,
        entities=tuple(sorted(entities)) if whole else None,
        lines={path: spans for path, change in found.items() if (spans := _spans(change, texts.get(path)))},
        hunks={path: tuple(hunk.old for hunk in change.hunks) for path, change in found.items() if change.hunks},
        added_files=tuple(sorted((created | left_out) - found.keys())),
        skipped=tuple(sorted({_shown(change.old) for change in changes if change.old is not None and change.idle})),
        unanswerable=not found,
        missing=missing if whole else {**dict.fromkeys(LEVELS, _summary(missing)), **missing},
    )


def _levels(
    found: Mapping[str, FileChange], texts: Mapping[str, bytes | None], no_tree: str
) -> tuple[set[str], set[str], dict[str, str]]:
    """Modules, entities, and path -> why they could not be determined."""
    modules: set[str] = set()
    entities: set[str] = set()
    missing: dict[str, str] = {}
    for path, change in found.items():
        suffix = PurePosixPath(path).suffix.lower()
        if not change.blocks:
            continue
        if _UNREAD.fullmatch(suffix):
            missing[path] = f"no reader for {suffix} files"
        elif suffix in _LANGUAGES:
            try:
                if no_tree:
                    raise NotOutlined(no_tree)
                names = _names(change, texts[path])
            except (NotOutlined, DoesNotApply) as error:
                missing[path] = str(error)
            else:
                modules.update(f"{path}:{name}" for name in names.modules)
                entities.update(f"{path}:{name}" for name in names.entities)
    return modules, entities, missing


def _names(change: FileChange, before: bytes | None) -> Names:
    """Definitions of the old text that the change touches: by removed lines, and by added lines in the new text."""
    if before is None:
        raise NotOutlined("the tree of the base commit has no such file")
    after = applied(located(change, before), before)
    old = _outline(change.old, before)
    names = old.at(line for block in change.blocks for line in block.old_lines)
    if change.new is not None:
        new = _outline(change.new, after)
        names |= new.at(line for block in change.blocks for line in block.new_lines) & old.all
    return names


def _outline(path: str | None, text: bytes) -> Outline:
    suffix = PurePosixPath(path or "").suffix.lower()
    language = _LANGUAGES.get(suffix)
    if language is None:
        raise NotOutlined(f"renamed to a kind of file that nothing here reads: {suffix or 'no suffix'}")
    return language.outline(text, suffix)


def _spans(change: FileChange, text: bytes | None) -> Spans:
    """The changed lines: sorted, adjacent spans merged, and cut at the end of the file if its text is known."""
    last = None if text is None else text.count(b"\n") + (text[-1:] not in (b"", b"\n"))
    merged: list[tuple[int, int]] = []
    for first, end in sorted(block.span for block in change.blocks):
        first, end = max(first, 1), end if last is None else min(end, last)
        if first > end:
            continue
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return tuple(merged)


def _summary(missing: Mapping[str, str]) -> str:
    path, why = next(iter(missing.items()))
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return f"{path}: {why}{more}"


def _shown(path: str | None) -> str:
    """Storable text: bytes that are not UTF-8 become U+FFFD."""
    return (path or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
