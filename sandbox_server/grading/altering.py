"""Applies variants to an instance: which files, and which texts of the instance itself, are replaced for one run."""

import ast
import asyncio
import math
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from sandbox_server.catalogue.diff import file_sections
from sandbox_server.catalogue.instance import ScriptGrader, SwebenchGrader, SweproGrader, TaskInstance
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.own_tests import named_files
from sandbox_server.grading.variants.base import Edit, Unit, Variant, edited

VariantByUnit = Mapping[int, Variant]
"""Unit number -> the variant it is altered by."""

T = TypeVar("T")

RunSlots = asyncio.Semaphore
"""Bounds how many runs test at a time. A run acquires it once its container exists and the patch is applied."""

COMMAND = "command.py"
"""Used in place of a path: the Python text inside the instance's own command."""

_MOST_NAMES = 50

_INLINE = re.compile(r"""python[\d.]* -c (["'])(?P<text>.+?)\1""", re.DOTALL)


class Runs(Protocol):
    """Runs an instance's tests, each time in a fresh container."""

    async def read(self, instance: TaskInstance, paths: Iterable[str]) -> "Texts":
        """The files that hold its tests, and the text files among `paths` before the tests' set-up.

        All of them are read in one container. Raises ServiceError.
        """
        ...

    async def run_altered(
        self,
        instance: TaskInstance,
        patch: bytes,
        altered: Mapping[str, bytes],
        *,
        focus: str = "",
        slots: RunSlots | None = None,
        slack: float = 1.0,
        most_s: float = math.inf,
    ) -> TestRun:
        """Run the tests over `patch` with the files in `altered` replaced, once it has one of `slots`.

        `focus`: pytest options. `slack`: how many times their limit the tests may take, but at most `most_s` seconds.
        Raises ServiceError.
        """
        ...

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        """The text files among `paths`, as they are in the repository with `patch`. Raises ServiceError."""
        ...


@dataclass(frozen=True, slots=True)
class Texts:
    """Files of the unpatched tree, path -> content."""

    tests: Mapping[str, bytes]
    """The files that hold the tests, after the tests' own set-up."""
    base: Mapping[str, bytes]
    """The files that were asked for, as they are in the repository."""


@dataclass(frozen=True, slots=True)
class Variants:
    """The `variants` part of a certificate."""

    units: tuple[Unit, ...] = ()
    why: str = ""
    """Why there are no units."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> text of the files that `units` alter."""
    stubs: tuple[str, ...] = ()
    """F2P tests that pass without a fix if functions just return or raise."""
    runs: int = 0
    seconds: float = 0.0
    focus: str = ""
    """pytest options that select little more than what `units` alter; "" runs whatever the command runs."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "version": VERSION,
            "why": self.why,
            "units": [unit.to_json() for unit in self.units],
            "files": dict(self.files),
            "stubs": list(self.stubs),
            "runs": self.runs,
            "seconds": self.seconds,
            "focus": self.focus,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Variants | None":
        """Read what `to_json` wrote; None if another version wrote it."""
        if values.get("version") != VERSION:
            return None
        plain = {name: values[name] for name in ("why", "files", "runs", "seconds", "focus")}
        units = tuple(Unit.from_json(unit) for unit in values["units"])
        return cls(units=units, stubs=tuple(values["stubs"]), **plain)

    @property
    def tests(self) -> frozenset[str]:
        """Those of the row's tests that can be altered."""
        return frozenset(test for unit in self.units for test in unit.tests)


VERSION = 12


def names_tests(instance: TaskInstance) -> bool:
    """Whether its grader tells which tests passed; other graders have one exit code only."""
    return isinstance(instance.grader, SwebenchGrader | SweproGrader) and bool(instance.fail_to_pass)


def test_paths(instance: TaskInstance) -> list[str]:
    """The files that hold the tests of a grader that names them, as far as the row tells."""
    if isinstance(instance.grader, SweproGrader):
        named = [re.split("::| ", name)[0] for name in instance.fail_to_pass]
        return [*instance.grader.selected_test_files, *named]
    if isinstance(instance.grader, SwebenchGrader):
        sections = file_sections(instance.test_patch.encode())
        # the failing tests may be in the repository already
        return sorted(named_files(instance.fail_to_pass).union(*(section.new for section in sections)))
    return []


def inline(instance: TaskInstance) -> bytes | None:
    """The Python text inside a script grader's command, if it appears there literally, without shell expansion."""
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
    instance: TaskInstance, files: Mapping[str, str], units: Sequence[Unit], by_unit: VariantByUnit
) -> tuple[TaskInstance, dict[str, bytes]]:
    """The instance to run, and the files to replace, for these variants of `units`.

    All `files` are replaced, unaltered ones too, because the choice of files would give away which tests are altered.
    For the same reason every unit that has a label gets it, and the instance names these tests as labelled.
    """
    by_path: dict[str, list[Variant]] = {path: [] for path in files}
    labels: dict[str, list[Edit]] = {path: [] for path in files}
    for number, variant in by_unit.items():
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
    by_unit: VariantByUnit,
    *,
    focus: str = "",
    slots: RunSlots | None = None,
    slack: float = 1.0,
    most_s: float = math.inf,
) -> TestRun:
    """Run the tests as changed by `altered`; `passed` holds the row's own test names. Raises ServiceError."""
    changed, texts = altered(instance, files, units, by_unit)
    run = await runs.run_altered(changed, patch, texts, focus=focus, slots=slots, slack=slack, most_s=most_s)
    back = {alias: test for unit in units for alias, test in unit.back.items()}
    return replace(run, passed=frozenset(back.get(name, name) for name in run.passed))


def focus_on(units: Iterable[Unit]) -> str:
    """Pytest options that select the units' tests (other runners ignore them); "" if there are too many to name."""
    names = dict.fromkeys(unit.name.partition("[")[0].rpartition(".")[2] for unit in units)
    if not all(names) or len(names) > _MOST_NAMES:
        return ""
    return f"-k '{' or '.join(names)}'"


@asynccontextmanager
async def running(works: Iterable[Coroutine[Any, Any, T]]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """Run all coroutines as tasks during the block; those unfinished at its end are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            if not task.cancelling():  # a second cancellation would interrupt the removal of its container
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def gather_or_cancel(*works: Coroutine[Any, Any, T]) -> list[T]:
    """The results of all coroutines; if one raises, the others are cancelled before its error is raised."""
    async with running(works) as tasks:
        return await asyncio.gather(*tasks)
