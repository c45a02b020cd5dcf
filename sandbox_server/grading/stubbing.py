"""Runs stubs of the fix (gold's functions reduced to one statement) to find F2P tests that pass without any fix."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sandbox_server.catalogue.changes import DoesNotApply, FileChange, applied, located, read_changes
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.mutants import stubs

Run = Callable[[bytes, Mapping[str, bytes]], Awaitable[TestRun]]
"""(patch, replaced files) -> result of the tests."""

_LEAST_S, _SLOWER = 30.0, 5
"""A run with a fault is limited to this many seconds, or this many times gold's slowest run if that is longer."""


class Reads(Protocol):
    """Reads files of the repository."""

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        """The text files among `paths` once `patch` is applied. Raises ServiceError."""
        ...


class Lines(NamedTuple):
    """Lines of one file that gold removes (`old`) and adds (`new`)."""

    old: list[int]
    new: list[int]


@dataclass(frozen=True, slots=True)
class Fix:
    """The Python files that gold changes, without tests: path -> changed lines, fixed text, unpatched text."""

    lines: Mapping[str, Lines]
    gold: Mapping[str, bytes]
    base: Mapping[str, bytes]

    def stubs(self) -> dict[str, dict[str, bytes]]:
        """Stub body -> files with that body, to be put over the unpatched tree."""
        made = {
            path: stubs(self.base.get(path, b""), text, self.lines[path].old, self.lines[path].new)
            for path, text in self.gold.items()
        }
        return {
            body: {path: bodies.get(body, bodies["return None"]) for path, bodies in made.items() if bodies}
            for body in dict.fromkeys(body for bodies in made.values() for body in bodies)
        }


def fix_changes(instance: TaskInstance) -> dict[str, FileChange]:
    """Gold's changes of Python files outside of the tests, by path. Raises UnreadablePatch."""
    tests = {change.new for change in read_changes(instance.test_patch)} if instance.test_patch.strip() else set()
    return {
        change.new: change
        for change in read_changes(instance.gold_patch)
        if change.new is not None and change.new.endswith(".py") and change.new not in tests and change.blocks
    }


async def read_fix(reads: Reads, instance: TaskInstance, base: Mapping[str, bytes] | None = None) -> Fix | None:
    """Read gold's fix; None if gold changes no Python outside of the tests.

    `base`: the files of `fix_changes` on the unpatched tree, if the caller has read them. Gold's text is computed from
    it; a container with gold is only needed where a hunk does not fit exactly.

    Raises:
        UnreadablePatch, ServiceError.

    """
    changes = fix_changes(instance)
    if not changes:
        return None
    lines = {
        path: Lines(
            [line for block in change.blocks for line in block.old_lines],
            [line for block in change.blocks for line in block.new_lines],
        )
        for path, change in changes.items()
    }
    if base is None:
        base = await reads.files_with(instance, b"", list(lines))
    try:
        gold = {path: _fixed(change, base.get(path)) for path, change in changes.items()}
    except DoesNotApply:
        gold = dict(await reads.files_with(instance, instance.gold_patch.encode(), list(lines)))
    return Fix(lines, gold, {path: base[path] for path in lines if path in base}) if gold else None


def _fixed(change: FileChange, base: bytes | None) -> bytes:
    if (base is None) is not (change.old is None):
        raise DoesNotApply(f"{change.new} is renamed, or no text")
    return applied(located(change, base or b""), base or b"")


async def stub_passes(run: Run, fix: Fix, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Stub body -> those of the tests `names` that pass with it."""
    names = tuple(names)
    found = {}
    for body, files in fix.stubs().items():
        passed = (await run(b"", files)).passed
        found[body] = tuple(name for name in names if name in passed)
    return found


def limited(instance: TaskInstance, slowest_s: float) -> TaskInstance:
    """`instance` with a shorter test timeout, because faulty code may loop for ever. `slowest_s`: gold's duration."""
    limit_s = min(instance.eval_timeout_s, max(_LEAST_S, _SLOWER * slowest_s))
    return instance.model_copy(update={"eval_timeout_s": limit_s})
