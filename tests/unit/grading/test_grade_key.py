"""The key under which sessions with the same patch share a verdict."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.grading import grading
from sandbox_server.grading.base import Judging
from sandbox_server.grading.confirming import Confirming
from sandbox_server.grading.containers import Containers
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.queue import grade_key
from sandbox_server.sandbox.base import Limits


def instance(name: str = "q__q-1", **fields: object) -> TaskInstance:
    """A row, graded by a script."""
    given = {"instance_id": name, "repo": "q/q", "sandbox": SandboxSpec(images=("unused",))}
    return TaskInstance.model_validate(given | {"grader": ScriptGrader(command="true")} | fields)


_FACTS = {"image": "sha256:1", "versions": {"swebench": "5.0.2"}, "runner_files": "strip"}
_KEY = grade_key(instance(), b"x", _FACTS)


@pytest.mark.parametrize(
    "other",
    [
        grade_key(instance(), b"y", _FACTS),
        grade_key(instance(), None, _FACTS),
        grade_key(instance(), b"x", {**_FACTS, "runner_files": "flag"}),
        grade_key(instance(), b"x", {**_FACTS, "versions": {"swebench": "5.0.3"}}),
        grade_key(instance(), b"x", {**_FACTS, "image": "sha256:2"}),
        grade_key(instance(eval_timeout_s=5.0), b"x", _FACTS),
        grade_key(instance("q__q-2"), b"x", _FACTS),
    ],
)
def test_whatever_could_change_the_verdict_changes_the_key(other: str) -> None:
    """Otherwise the verdict of another row, image, guard or library would be reused."""
    assert other != _KEY


def test_without_a_patch_its_cause_counts() -> None:
    """The verdict quotes why there is no patch: it would quote another session's reason."""
    causes = ("the agent removed the work tree", "the patch is too large")
    assert len({grade_key(instance(), None, _FACTS, cause) for cause in causes}) == 2
    assert {grade_key(instance(), b"x", _FACTS, cause) for cause in causes} == {_KEY}


def test_the_key_is_stable() -> None:
    """Stored verdicts are found again after a restart, whatever order the row's maps come back in."""
    one = instance(files={"a": "1", "b": "2"})
    two = instance(files={"b": "2", "a": "1"})
    assert grade_key(one, b"x", _FACTS) == grade_key(two, b"x", dict(reversed(_FACTS.items())))


class _Containers:
    """What `Grading.facts` asks of the containers."""

    network = "none"

    async def image_digest(self, instance: TaskInstance) -> str:
        return ""

    def limits_of(self, instance: TaskInstance) -> Limits:
        return Limits()


async def _facts(*, judging: Judging | None = None, confirm: Mapping[str, Any] | None = None) -> Mapping[str, object]:
    """The facts of a grading with these bounds on judging and these arguments of `Confirming`."""
    judge = SimpleNamespace(versions={})
    made = Grading(
        cast(Containers, _Containers()),
        {"script": cast(Any, judge)},
        cast(Any, None),
        git_home=Path("/nonexistent"),
        judging=judging,
    )
    if confirm is not None:
        given = {"mode": "resolved", "earns": None, **confirm}
        made.confirming = Confirming(cast(Any, None), cast(Any, None), **cast(Any, given))
    return await made.facts(instance())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"judging": Judging(memory_mb=64)}),
        ({}, {"confirm": {}}),
        ({"confirm": {}}, {"confirm": {"mode": "off"}}),
        ({"confirm": {}}, {"confirm": {"least_runs": 7}}),
        ({"confirm": {}}, {"confirm": {"times": 3.0}}),
        ({"confirm": {"reward": "resolved"}}, {"confirm": {"reward": "f2p_fraction"}}),
    ],
)
async def test_a_verdict_is_not_shared_with_who_asks_for_more(one: dict[str, Any], other: dict[str, Any]) -> None:
    """A verdict of two confirming runs was given to those who asked for seven, and an unconfirmed part was paid."""
    assert await _facts(**one) != await _facts(**other)


async def test_a_verdict_is_not_shared_after_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches that a new guard leaves out kept the `resolved` that they had got from the old one."""
    before = await _facts()
    assert before == await _facts()
    monkeypatch.setattr(grading, "code_of_grading", lambda: "other sources")
    assert before != await _facts()
