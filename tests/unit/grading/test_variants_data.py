"""Files of data that tests read are altered where nothing else can be."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.altering import Texts
from sandbox_server.grading.base import TestRun as Run
from sandbox_server.grading.certifying import Certifying
from sandbox_server.grading.variants.base import edited
from sandbox_server.grading.variants.data import MOST, is_data, variants_of_data
from sandbox_server.verdicts import VerdictName

from .simulated import PATH, Kept, Runs, task

_DATA = "tests/golden.json"
_TESTS = 'def test_0():\n    assert f(0) == GOLDEN["a"]\n\n\ndef test_1():\n    assert f(1) == GOLDEN["b"]\n'
_GOLDEN = '{"a": "first", "b": "second"}\n'


class Reading(Runs):
    """Two tests that expect what stands in a file of data; the unpatched tree fails them and their opposites."""

    tests = _TESTS
    together = False

    async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
        texts = await super().read(instance, [path for path in paths if path != _DATA])
        return replace(texts, tests={PATH: self.tests.encode(), _DATA: _GOLDEN.encode()})

    async def run_altered(self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any) -> Run:
        self.done += 1
        tests, data = (altered.get(path, b"").decode() for path in (PATH, _DATA))
        false = set(re.findall(r"f\((\d)\) !=", tests))
        false |= {at for at, said in re.findall(r"f\((\d)\) == (\d+)", tests) if int(said) != int(at) + 10}
        changed = {str(at) for at, word in enumerate(("first", "second")) if data and f'"{word}"' not in data}
        false |= {"0", "1"} if changed and self.together else changed
        passed = {f"{PATH}::test_{at}" for at in ("0", "1") if patch and at not in false} | {"kept"}
        name = VerdictName.RESOLVED if len(passed) == 3 else VerdictName.UNRESOLVED
        return Run(name, "", 0, 0, passed=frozenset(passed))


def _task() -> TaskInstance:
    patch = "".join(f"--- a/{path}\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n" for path in (PATH, _DATA))
    return task(2).model_copy(update={"test_patch": patch})


@pytest.mark.parametrize("together", [False, True])
async def test_what_stands_in_a_file_of_data_is_altered_there(together: bool) -> None:
    """Code that returned what the file says was confirmed: it passes each test, and fails its opposite."""
    runs = Reading(2)
    runs.together = together
    made = await Certifying(runs, Kept()).variants(_task(), "k")
    ids = [f"{PATH}::test_{at}" for at in range(2)]
    units = {unit.tests: {variant.kind for variant in unit.variants} for unit in made.units}
    assert units == ({tuple(ids): {"value"}} if together else {(ids[0],): {"value"}, (ids[1],): {"value"}})
    assert {unit.path for unit in made.units} == set(made.files) == {_DATA} and not made.focus


@pytest.mark.parametrize("swapped", [False, True])
async def test_python_that_tests_read_is_altered_where_nothing_else_can_be(
    monkeypatch: pytest.MonkeyPatch, swapped: bool
) -> None:
    """Tests of formatters read `cases/*.py`, and stand in a file that the test patch does not touch."""
    monkeypatch.setattr(f"{__name__}._DATA", "tests/cases/one.py")
    runs = Reading(2)
    runs.tests = _TESTS if swapped else ""
    made = await Certifying(runs, Kept()).variants(_task(), "k")
    assert {unit.path for unit in made.units} == {PATH if swapped else "tests/cases/one.py"}


async def test_it_stays_where_the_tests_say_what_they_expect() -> None:
    """It costs runs."""
    runs = Reading(2)
    runs.tests = "def test_0():\n    assert f(0) == 10\n\n\ndef test_1():\n    assert f(1) == 11\n"
    assert not any(unit.path == _DATA for unit in (await Certifying(runs, Kept()).variants(_task(), "k")).units)


def test_only_new_values_are_altered() -> None:
    base = b"- old: word 12\n"
    text = base + b'  "key": "other word", 1.5, 34, path.txt\n'
    made = variants_of_data(text, base, Random(1))
    was = {text[edit.start : edit.end] for variant in made for edit in variant.edits}
    assert was == {b"other", b"word", b"34"}
    assert all(edited(text, [variant]) != text for variant in made)
    assert len(variants_of_data(b"word " * 100, b"", Random(1))) == MOST
    assert not variants_of_data(b"word " * 60_000, b"", Random(1))
    assert is_data("a/x.snap") and is_data("golden.json") and not any(map(is_data, ("a.py", "a.test.ts", "tox.ini")))


def test_of_a_document_with_doctests_only_the_output_is_altered() -> None:
    """With other input than the test's, right code may give what the test expects."""
    text = b"A document\n\nsome words\n>>> f(10)\n'ten'\n>>> for n in f(20):\n...     print(n)\n30\n\nand others\n"
    made = variants_of_data(text, b"", Random(1))
    assert {text[edit.start : edit.end] for variant in made for edit in variant.edits} == {b"ten", b"30"}
