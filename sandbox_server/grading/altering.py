"""An instance under false tests: which files, and which of its own texts, are replaced for one run."""

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sandbox_server.catalogue.instance import ScriptGrader, SwebenchGrader, SweproGrader, TaskInstance
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.variants.base import Unit, Variant, edited

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


@dataclass(frozen=True, slots=True)
class Variants:
    """The part `variants` of a certificate."""

    units: tuple[Unit, ...] = ()
    why: str = ""
    """Why there are none."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Text of the files that `units` alter."""
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
        return cls(units=tuple(Unit.from_json(unit) for unit in values["units"]), **plain)

    @property
    def tests(self) -> frozenset[str]:
        """The row's tests that can be altered."""
        return frozenset(test for unit in self.units for test in unit.tests)


VERSION = 1


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
    instance: TaskInstance, files: Mapping[str, str], chosen: Iterable[tuple[Unit, Variant]]
) -> tuple[TaskInstance, dict[str, bytes]]:
    """What to run for these variants: the instance, and the files to replace.

    All of `files` are, also those in which nothing is altered: what is replaced would tell.
    """
    by_path: dict[str, list[Variant]] = {path: [] for path in files}
    for unit, variant in chosen:
        by_path[unit.path].append(variant)
    texts = {path: edited(files[path].encode(), variants) for path, variants in by_path.items()}
    text = texts.pop(COMMAND, None)
    if text is not None and isinstance(instance.grader, ScriptGrader):
        command = instance.grader.command.replace(files[COMMAND], text.decode(), 1)
        instance = instance.model_copy(update={"grader": instance.grader.model_copy(update={"command": command})})
    return instance, texts


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
