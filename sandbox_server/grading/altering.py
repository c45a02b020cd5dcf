"""An instance under false tests: which files, and which of its own texts, are replaced for one run."""

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from sandbox_server.catalogue.instance import ScriptGrader, SwebenchGrader, SweproGrader, TaskInstance
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.variants.base import Edit, Unit, Variant, edited

Chosen = Mapping[int, Variant]
"""Number of a unit -> how it is altered."""

T = TypeVar("T")

Room = asyncio.Semaphore
"""Bounds how many runs test at a time; their containers are made and patched before it is asked for."""

COMMAND = "command.py"
"""In place of a path: the Python text inside the instance's own command."""

_MOST_NAMES = 50

_INLINE = re.compile(r"""python[\d.]* -c (["'])(?P<text>.+?)\1""", re.DOTALL)


class Runs(Protocol):
    """Runs an instance's tests, each time in a fresh container."""

    async def test_files(self, instance: TaskInstance) -> Mapping[str, bytes]:
        """The files that hold its tests. Raises ServiceError."""
        ...

    async def run_altered(
        self,
        instance: TaskInstance,
        patch: bytes,
        altered: Mapping[str, bytes],
        *,
        focus: str = "",
        room: Room | None = None,
    ) -> TestRun:
        """The tests over `patch`, those files replaced, pytest with the options `focus`; they wait for `room`.

        Raises ServiceError.
        """
        ...

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        """Those of `paths` that are text files of the repository with `patch`. Raises ServiceError."""
        ...


@dataclass(frozen=True, slots=True)
class Variants:
    """The part `variants` of a certificate."""

    units: tuple[Unit, ...] = ()
    why: str = ""
    """Why there are none."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Text of the files that `units` alter."""
    stubs: tuple[str, ...] = ()
    """F2P tests that pass without a fix, for functions that only return or raise."""
    runs: int = 0
    seconds: float = 0.0
    gold_s: float = 0.0
    """What the tests took over gold."""
    focus: str = ""
    """Options with which pytest runs little but what `units` alter; "": whatever the command runs."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "version": VERSION,
            "why": self.why,
            "units": [unit.to_json() for unit in self.units],
            "files": dict(self.files),
            "stubs": list(self.stubs),
            "runs": self.runs,
            "seconds": self.seconds,
            "gold_s": self.gold_s,
            "focus": self.focus,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Variants | None":
        """Of `to_json`; None where an older server made them otherwise."""
        if values.get("version") != VERSION:
            return None
        plain = {name: values[name] for name in ("why", "files", "runs", "seconds", "gold_s", "focus")}
        units = tuple(Unit.from_json(unit) for unit in values["units"])
        return cls(units=units, stubs=tuple(values["stubs"]), **plain)

    @property
    def tests(self) -> frozenset[str]:
        """The row's tests that can be altered."""
        return frozenset(test for unit in self.units for test in unit.tests)


VERSION = 3


def names_tests(instance: TaskInstance) -> bool:
    """Its grader tells which tests passed; others tell one exit code."""
    return isinstance(instance.grader, SwebenchGrader | SweproGrader) and bool(instance.fail_to_pass)


def inline(instance: TaskInstance) -> bytes | None:
    """The Python text in the command of a script grader, where there is one that stands there as it is run."""
    if not isinstance(instance.grader, ScriptGrader):
        return None
    found = _INLINE.search(instance.grader.command)
    if found is None or re.search(r"[\\$`]", found["text"]):
        return None
    try:
        ast.parse(found["text"])
    except (SyntaxError, ValueError):
        return None
    return found["text"].encode()


def altered(
    instance: TaskInstance, files: Mapping[str, str], units: Sequence[Unit], chosen: Chosen
) -> tuple[TaskInstance, dict[str, bytes]]:
    """What to run for these variants of `units`: the instance, and the files to replace.

    All of `files` are, also those in which nothing is altered: what is replaced would tell. Nor does a label tell
    anything: all units that have one get it, and the instance calls their tests as they are called then.
    """
    by_path: dict[str, list[Variant]] = {path: [] for path in files}
    labels: dict[str, list[Edit]] = {path: [] for path in files}
    for number, variant in chosen.items():
        by_path[units[number].path].append(variant)
    for unit in units:
        labels[unit.path] += unit.label
    texts = {path: edited(files[path].encode(), by_path[path], labels[path]) for path in files}
    text = texts.pop(COMMAND, None)
    if text is not None and isinstance(instance.grader, ScriptGrader):
        command = instance.grader.command.replace(files[COMMAND], text.decode(), 1)
        instance = instance.model_copy(update={"grader": instance.grader.model_copy(update={"command": command})})
    if names := {test: alias for unit in units for alias, test in unit.back.items() if alias != test}:
        fixed = tuple(names.get(test, test) for test in instance.fail_to_pass)
        instance = instance.model_copy(update={"fail_to_pass": fixed})
    return instance, texts


async def run_under(
    runs: Runs,
    instance: TaskInstance,
    patch: bytes,
    files: Mapping[str, str],
    units: Sequence[Unit],
    chosen: Chosen,
    *,
    focus: str = "",
    room: Room | None = None,
) -> TestRun:
    """A run as `altered` makes it; what passed is told by the row's names. Raises ServiceError."""
    changed, texts = altered(instance, files, units, chosen)
    run = await runs.run_altered(changed, patch, texts, focus=focus, room=room)
    back = {alias: test for unit in units for alias, test in unit.back.items()}
    return replace(run, passed=frozenset(back.get(name, name) for name in run.passed))


def focus_on(units: Iterable[Unit]) -> str:
    """Options for pytest; other runners do not read them. "": there are too many tests to name."""
    names = dict.fromkeys(unit.name.partition("[")[0].rpartition(".")[2] for unit in units)
    if not all(names) or len(names) > _MOST_NAMES:
        return ""
    return f"-k '{' or '.join(names)}'"


@asynccontextmanager
async def running(works: Iterable[Coroutine[Any, Any, T]]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """All of them, as tasks; those that go on at the end of the block are ended there."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def together(*works: Coroutine[Any, Any, T]) -> list[T]:
    """What all of them give; where one raises, the others are ended before its error is raised."""
    async with running(works) as tasks:
        return await asyncio.gather(*tasks)
