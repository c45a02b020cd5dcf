"""Runs stubs of the fix: gold's functions reduced to one statement, to see which F2P tests pass without any fix."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sandbox_server.catalogue.changes import read_changes
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.mutants import stubs

Run = Callable[[bytes, Mapping[str, bytes]], Awaitable[TestRun]]
"""(patch, files that are replaced) -> what the tests give."""

_LEAST_S, _SLOWER = 30.0, 5
"""A fault's run ends after this many seconds, or after this many times the slowest run of gold."""


class Reads(Protocol):
    """Reads files of the repository."""

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        """Those of `paths` that are text files once `patch` is applied. Raises ServiceError."""
        ...


class Lines(NamedTuple):
    """Lines of one file that gold changes."""

    old: list[int]
    new: list[int]


@dataclass(frozen=True, slots=True)
class Fix:
    """The Python files that gold changes, without tests; path -> text or lines."""

    lines: Mapping[str, Lines]
    gold: Mapping[str, bytes]
    base: Mapping[str, bytes]

    def stubs(self) -> dict[str, dict[str, bytes]]:
        """What a stub does -> the files that hold it, over the unpatched tree."""
        made = {
            path: stubs(self.base.get(path, b""), text, self.lines[path].old, self.lines[path].new)
            for path, text in self.gold.items()
        }
        return {
            body: {path: bodies.get(body, bodies["return None"]) for path, bodies in made.items() if bodies}
            for body in dict.fromkeys(body for bodies in made.values() for body in bodies)
        }


async def read_fix(reads: Reads, instance: TaskInstance) -> Fix | None:
    """None: gold changes no Python outside of the tests. Raises UnreadablePatch, ServiceError."""
    tests = {change.new for change in read_changes(instance.test_patch)} if instance.test_patch.strip() else set()
    lines = {
        change.new: Lines(
            [line for block in change.blocks for line in block.old_lines],
            [line for block in change.blocks for line in block.new_lines],
        )
        for change in read_changes(instance.gold_patch)
        if change.new is not None and change.new.endswith(".py") and change.new not in tests
    }
    lines = {path: found for path, found in lines.items() if found.new or found.old}
    if not lines:
        return None
    gold = await reads.files_with(instance, instance.gold_patch.encode(), list(lines))
    return Fix(lines, gold, await reads.files_with(instance, b"", list(lines))) if gold else None


async def stub_passes(run: Run, fix: Fix, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What a stub does -> those of the tests `names` that pass for it."""
    names = tuple(names)
    found = {}
    for body, files in fix.stubs().items():
        passed = (await run(b"", files)).passed
        found[body] = tuple(name for name in names if name in passed)
    return found


def limited(instance: TaskInstance, slowest_s: float) -> TaskInstance:
    """`instance` with a shorter time for its tests, for a fault may make a loop endless; `slowest_s` is gold's time."""
    limit_s = min(instance.eval_timeout_s, max(_LEAST_S, _SLOWER * slowest_s))
    return instance.model_copy(update={"eval_timeout_s": limit_s})
