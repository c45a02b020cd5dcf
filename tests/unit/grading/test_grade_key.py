"""The key under which sessions with the same patch share a verdict."""

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.grading.queue import grade_key


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
