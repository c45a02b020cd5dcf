"""Tasks of several steps: each becomes an instance, with what the task and the step say of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_server.catalogue.harbor.archives import Folder
from sandbox_server.catalogue.importing import read_tasks
from sandbox_server.catalogue.instance import Collect, HarborGrader, TaskInstance
from sandbox_server.catalogue.services import Health
from sandbox_server.catalogue.steps import Step
from tests.conftest import ROOT

Make = Callable[..., Path]
TWO = "[[steps]]\nname = 'one'\n[[steps]]\nname = 'two'\n"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(toml, **files): a task with these texts beside those of two steps; a file whose text is None is left out."""

    def task(toml: str = TWO, **files: str | None) -> Path:
        plain = {
            "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
            "tests/test.sh": "shared\n",
            "steps/one/instruction.md": "Do one.",
            "steps/two/instruction.md": "Do two.",
        }
        for name, text in {**plain, "task.toml": toml, **files}.items():
            path = tmp_path / "some-task" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                path.write_text(text)
        return tmp_path / "some-task"

    return task


def steps(folder: Path, *carry: str) -> list[tuple[TaskInstance, HarborGrader, Step]]:
    found, refused = read_tasks(folder, carry)
    assert not refused, refused
    return [(one, one.grader, one.step) for one in found if isinstance(one.grader, HarborGrader) and one.step]


def test_the_example_in_full() -> None:
    """A field of a step is read and then forgotten."""
    (one, first, step), (two, second, last) = steps(ROOT / "examples" / "harbor" / "steps")
    assert (one.instance_id, two.instance_id) == ("samples/steps", "samples/steps/report")
    assert one.workspace == two.workspace and one.sandbox.images == two.sandbox.images  # one image for all steps
    assert one.problem_statement.startswith("Write `total.sh`") and two.problem_statement.startswith("The file of")
    assert (step.before, step.next, step.min_reward) == ("", "samples/steps/report", {"reward": 0.5})
    assert (last.before, last.next, last.min_reward) == ("samples/steps", "", {})
    assert [(s.name, s.number, s.of, s.strategy) for s in (step, last)] == [
        ("sum", 1, 2, "mean"),
        ("report", 2, 2, "mean"),
    ]
    assert last.health is not None and last.health.test[2] == "test -s /app/data/february.csv"
    assert Folder(last.uploads).text("incoming/february.csv") == "rent,700\nfood,310\n" and not step.uploads
    scripts = [Folder(grader.tests).text("test.sh") for grader in (first, second)]
    assert all(Folder(grader.tests).text("right.sh") for grader in (first, second)) and scripts[0] != scripts[1]
    assert "report.txt" in str(scripts[1]) and "report" not in first.tests + str(scripts[0])


_ALL = """
multi_step_reward_strategy = 'final'
artifacts = ['/srv/a']
[agent]
user = 'ann'
network_mode = 'no-network'
[verifier]
timeout_sec = 50
user = 'bob'
env = { A = 'task', B = 'task' }
[[verifier.collect]]
command = 'first'
[[steps]]
name = 'one'
min_reward = { a = 1, b = 0.5 }
artifacts = ['/srv/b']
[steps.agent]
user = 'carl'
network_mode = 'public'
[steps.verifier]
timeout_sec = 7
user = 'dan'
env = { B = 'step' }
[[steps.verifier.collect]]
command = 'second'
[steps.healthcheck]
command = 'true'
[[steps]]
name = 'zwei ä'
"""


def test_what_a_step_says_goes_before_what_the_task_says(make: Make) -> None:
    """A step is played by another user, in another network or for longer than its author wrote."""
    files = {
        "steps/one/tests/test.sh": "own\n",
        "steps/one/solution/solve.sh": "own\n",
        "solution/solve.sh": "shared\n",
        "tests/help.py": "help",
        "steps/zwei ä/instruction.md": "Two.",
    }
    (one, first, step), (two, second, last) = steps(make(_ALL, **files))
    assert two.instance_id == "some-task/zwei ä" == step.next
    assert (one.sandbox.user, two.sandbox.user) == ("carl", "ann")
    assert (one.sandbox.network, two.sandbox.network) == ("bridge", "none")
    assert (first.user, second.user) == ("dan", "bob") and (one.eval_timeout_s, two.eval_timeout_s) == (7, 50)
    assert (first.env, second.env) == ({"A": "task", "B": "step"}, {"A": "task", "B": "task"})
    assert first.collect == (Collect(command="first"), Collect(command="second")) and len(second.collect) == 1
    assert first.carried == ("/app", "/logs/artifacts", "/srv/a", "/srv/b") and "/srv/b" not in second.carried
    assert (step.strategy, step.min_reward, last.min_reward) == ("final", {"a": 1.0, "b": 0.5}, {})
    assert step.health == Health(test=("bash", "-c", "true"), interval_s=5, retries=3, start_interval_s=5)
    for name, own, shared in (("test.sh", first.tests, second.tests), ("solve.sh", first.solution, second.solution)):
        assert (Folder(own).text(name), Folder(shared).text(name)) == ("own\n", "shared\n")
    assert Folder(first.tests).text("help.py") == "help"  # the task's own tests lie beside those of the step


REFUSED: dict[str, tuple[str, dict[str, str | None]]] = {
    "steps/two/instruction.md is missing": (TWO, {"steps/two/instruction.md": None}),
    "steps/one/tests/test.sh is missing": (TWO, {"tests/test.sh": None}),
    "'../x' cannot be the name of a folder": ("[[steps]]\nname = '../x'", {}),
    "two steps have the same name": (f"{TWO}[[steps]]\nname = 'TWO'", {}),
    "steps.0.name: Field required": ("[[steps]]\nmin_reward = 1", {}),
    "[environment] gpus": ("[environment]\ngpus = 1\n" + TWO, {}),
    "[[steps]] with services": (
        TWO,
        {"environment/docker-compose.yaml": "services: {main: {}, db: {image: redis}}"},
    ),
    "a compose file in steps/two/tests": (
        f"{TWO}verifier = {{ environment_mode = 'separate' }}",
        {"steps/two/tests/docker-compose.yaml": "services: {}"},
    ),
    "(several containers)": (TWO, {"environment/compose.yaml": "services: {}"}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_task_is_imported_with_all_its_steps_or_not_at_all(make: Make, why: str) -> None:
    """A rollout reaches a step that does not exist."""
    toml, files = REFUSED[why]
    found, (said,) = read_tasks(make(toml, **files))
    assert not found and "some-task" in said and why in said, said


def test_the_work_directory_reaches_the_next_step_but_not_a_separate_verifier(make: Make) -> None:
    """A later step lacks the work of the one before, or a verifier sees more than the declared artifacts."""
    toml = f"artifacts = ['/app/out/a', '/srv/b']\n[verifier]\nenvironment_mode = 'separate'\n{TWO}"
    (one, grader, step), _ = steps(make(toml, **{"tests/Dockerfile": "FROM a\n"}))
    assert grader.carried == ("/app/out/a", "/logs/artifacts", "/srv/b") == one.placed
    assert step.kept == ("/app",) and set(one.carried) == {"/app", "/logs/artifacts", "/srv/b"}


_OWN = "[verifier]\nenvironment_mode = 'separate'\n[verifier.environment]\ndocker_image = 'task:1'\nworkdir = '/w'\n"


@pytest.mark.parametrize(
    ("toml", "files", "image", "context"),
    [
        # as Harbor: the step's image or Dockerfile, else the verifier's, else the task's image with these tests
        (f"{_OWN}{TWO}", {}, "task:1", None),
        (
            f"{_OWN}{TWO}verifier = {{ environment = {{ docker_image = 'step:1', workdir = '/w' }} }}",
            {},
            "step:1",
            None,
        ),
        (f"{_OWN}{TWO}", {"steps/two/tests/Dockerfile": "FROM step\n"}, "", "FROM step\n"),
        (f"{TWO}verifier = {{ environment_mode = 'separate' }}", {"tests/Dockerfile": "FROM t\n"}, "", "FROM t\n"),
        (f"{TWO}verifier = {{ environment_mode = 'separate' }}", {}, "", None),
        (f"{_OWN}{TWO}verifier = {{ environment_mode = 'shared' }}", {}, "", None),
    ],
)
def test_where_the_tests_of_a_step_run(
    make: Make, toml: str, files: dict[str, str], image: str, context: str | None
) -> None:
    """A step is graded in the image of another one, or without its tests."""
    _, (_, grader, _) = steps(make(toml, **files))
    if context is not None:
        assert grader.build is not None and Folder(grader.build.context).text("Dockerfile") == context
    else:
        assert grader.images == ((image,) if image else ())
    assert bool(grader.tests) is (not image and context is None)
