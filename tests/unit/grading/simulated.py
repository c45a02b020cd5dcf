"""Simulated runs of tests, for certifying and confirming."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.altering import Texts
from sandbox_server.grading.base import TestRun as Run
from sandbox_server.grading.certifying import Certifying
from sandbox_server.grading.confirming import Confirming, ConfirmMode
from sandbox_server.verdicts import Verdict, VerdictName

PATH = "tests/test_a.py"


TESTS = f"--- a/{PATH}\n+++ b/{PATH}\n@@ -0,0 +1 @@\n+# the tests\n"


def task(count: int) -> TaskInstance:
    names = [f"{PATH}::test_{number}" for number in range(count)]
    return TaskInstance.model_validate(
        {
            "instance_id": "a__a-1",
            "repo": "a/a",
            "sandbox": {"images": ("a",)},
            "grader": {"kind": "swebench", "eval_script": "true", "log_parser": "parse_log_pytest"},
            "fail_to_pass": names,
            "pass_to_pass": ("kept",),
            "gold_patch": "gold",
            "test_patch": TESTS,
        }
    )


def text(count: int) -> str:
    return "\n\n".join(f"def test_{number}():\n    assert f({number}) == {number + 10}\n" for number in range(count))


def true_ones(now: str) -> set[str]:
    """Numbers of the tests that are true in the file's text."""
    return {
        number
        for number, said in re.findall(r"f\((\d+)\) == (\d+)$", now, re.MULTILINE)
        if int(number) + 10 == int(said)
    }


class Runs:
    """Tests over code that `passes(number, true)` describes; gold and the unpatched tree are as they should be."""

    def __init__(self, count: int, passes: Callable[[str, bool], bool] = lambda number, true: true) -> None:
        self.count = count
        self.passes = passes
        self.done = 0
        self.read_apart = 0
        self.base = b""
        self.result: dict[bytes, VerdictName] = {}

    async def read(self, instance: TaskInstance, paths: Iterable[str]) -> Texts:
        self.read_at_once = list(paths)
        base = {PATH: self.base, "calc.py": b"def f(number):\n    return number\n"}
        return Texts({PATH: text(self.count).encode()}, {path: base[path] for path in self.read_at_once})

    async def files_with(self, instance: TaskInstance, patch: bytes, paths: Iterable[str]) -> Mapping[str, bytes]:
        self.read_apart += 1
        return {PATH: self.base}

    async def run_altered(self, instance: TaskInstance, patch: bytes, altered: Mapping[str, bytes], **how: Any) -> Run:
        self.done += 1
        if result := self.result.get(patch):
            return Run(result, "as told", 0, 0)
        true = true_ones(altered.get(PATH, text(self.count).encode()).decode())
        numbers = map(str, range(self.count))
        if patch == b"gold":
            passed = true
        elif patch:
            passed = {number for number in numbers if self.passes(number, number in true)}
        else:
            passed = set()
        name = VerdictName.RESOLVED if len(passed) == self.count else VerdictName.UNRESOLVED
        return Run(name, "", 0, 0, passed=frozenset({*(f"{PATH}::test_{number}" for number in passed), "kept"}))


class Kept:
    def __init__(self) -> None:
        self.documents: dict[str, str] = {}

    async def part(self, key: object, part: str) -> dict[str, Any] | None:
        found = self.documents.get(f"{key} {part}")
        return None if found is None else json.loads(found)

    async def update(self, key: object, part: str, document: Mapping[str, Any]) -> None:
        self.documents[f"{key} {part}"] = json.dumps(dict(document))


def confirming(
    runs: Runs, *, kept: Kept | None = None, mode: ConfirmMode = "resolved", seed: int = 1, pays: bool = True
) -> Confirming:
    certifying, rng = Certifying(runs, kept or Kept()), Random(seed)
    return Confirming(runs, certifying, mode=mode, earns=lambda _, v: v.resolved, unconfirmed_pays=pays, rng=rng)


RESOLVED = Verdict(VerdictName.RESOLVED, mask=False, cause="", image_digest="sha256:1", f2p_count=3, p2p_count=1)


async def shares(count: int, passes: Callable[[str, bool], bool], rounds: int) -> float:
    """The share of trials in which such code is confirmed."""
    runs, kept, through, instance = Runs(count, passes), Kept(), 0, task(count)
    for seed in range(rounds):
        found = await confirming(runs, kept=kept, seed=seed).confirm(instance, b"patch", RESOLVED)
        assert found.confirm is not None
        through += found.confirm.state == "confirmed"
    return through / rounds
