"""Task folders of Harbor as instances: what is read, what is refused and why."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_server.catalogue.harbor.archives import packed
from sandbox_server.catalogue.harbor.dockerfile import read
from sandbox_server.catalogue.importing import read_tasks
from sandbox_server.catalogue.instance import Artifact, Collect, HarborGrader, TaskInstance
from sandbox_server.catalogue.services import Health
from sandbox_server.errors import MalformedRequest
from tests.conftest import ROOT

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(toml, **files): a task with these texts beside a plain Dockerfile, instruction and test.sh."""

    def task(toml: str = "", **files: str) -> Path:
        plain = {
            "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
            "instruction.md": "Do it.",
            "tests/test.sh": "true\n",
        }
        for name, text in {**plain, "task.toml": toml, **files}.items():
            path = tmp_path / "some-task" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "some-task"

    return task


def imported(folder: Path, *carry: str) -> tuple[TaskInstance, HarborGrader]:
    (instance,), refused = read_tasks(folder, carry)
    assert not refused and isinstance(instance.grader, HarborGrader)
    return instance, instance.grader


def test_the_examples_in_full() -> None:
    """A field of task.toml is read and then forgotten."""
    found, refused = read_tasks(ROOT / "examples" / "harbor")
    assert not refused
    tasks = {instance.instance_id: (instance, instance.grader) for instance in found}
    hello, scores = tasks["hello"], tasks["samples/scores"]
    assert hello[0].problem_statement.startswith("Write a file")  # the line that marks benchmark data is gone
    assert (hello[0].sandbox.memory_mb, hello[0].sandbox.disk_mb, hello[0].sandbox.cpus) == (1024, 2048, 1.0)
    assert (hello[0].sandbox.network, hello[0].sandbox.workdir) == ("bridge", "/app")
    assert (scores[0].sandbox.network, scores[0].sandbox.workdir) == ("none", "/srv/text")
    assert (scores[0].sandbox.memory_mb, scores[0].sandbox.disk_mb, scores[0].sandbox.cpus) == (512, 1024, 1.0)
    assert (scores[0].version, scores[0].eval_timeout_s) == ("2", 60.0)
    assert scores[0].sandbox.env == {"LANGUAGE_CODE": "en"}
    grader = tasks["samples/separate"][1]
    assert isinstance(grader, HarborGrader) and isinstance(scores[1], HarborGrader)
    assert (scores[1].env, scores[1].solution_env) == ({"LEAST": "3"}, {"GREETING": "Good morning"})
    assert scores[1].carried == ("/logs/artifacts", "/srv/text")
    assert grader.carried == ("/logs/artifacts", "/srv/report.bin", "/work/notes")
    assert [(one.command, one.timeout_s) for one in grader.collect] == [("cp /tmp/state notes/state", 10.0)]
    assert grader.user == "nobody"
    assert (grader.tests, grader.workdir) == ("", "/check") and grader.build is not None
    assert all(
        instance.sandbox.images == (instance.sandbox.build.image,) for instance in found if instance.sandbox.build
    )


REFUSED = {
    "[environment]\nos = 'Windows'": "[environment] os = 'windows'",
    "[environment]\ngpus = 1": "[environment] gpus",
    "[environment.healthcheck]\ncommand = 'true'\nretries = 0": "environment.healthcheck.retries",
    "[[environment.mcp_servers]]\nname = 'a'": "url is required for the transport sse",
    "[[environment.mcp_servers]]\nname = 'a'\ntransport = 'stdio'": "command is required for the transport stdio",
    "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['http://a/']": "allowed_hosts.0: Value error, 'http://a/'",
    "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['10.0.0.300']": "agent.allowed_hosts.0",
    "[verifier]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['*.10.0.0.1']": "verifier.allowed_hosts.0",
    "[environment]\nnetwork_mode = 'whatever'": "environment.network_mode",
    "[[steps]]\nname = 'one'": "steps/one/instruction.md is missing",
    "[[verifier.collect]]\ncommand = 'true'\nservice = 'db'": "the service 'db', which does not exist",
    "artifacts = [{ source = '/x', service = 'db' }]": "the service 'db', which does not exist",
    "artifacts = ['/a/../x']": "has a part '..'",
    "[verifier.env]\nOPENAI_API_KEY = '${OPENAI_API_KEY}'": "from the host's $OPENAI_API_KEY",
    "artifacts = ['/logs']": "/logs cannot be carried",
    "artifacts = ['/']": "/ cannot be carried",
    "[environment]\nmemory = 'much'": "'much' is not a size",
    "[environment]\nworkdir = '/'": "names no artifacts",
    "[environment]\ncpus = 0": "environment.cpus",
    "x = ": "task.toml: Invalid value",
}


@pytest.mark.parametrize("toml", REFUSED)
def test_what_is_not_supported_is_named(make: Make, toml: str) -> None:
    """A task is imported, and its rollouts then fail, or earn what its author did not mean."""
    found, (why,) = read_tasks(make(toml))
    assert not found and "some-task" in why and REFUSED[toml] in why, why


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("environment/docker-compose.yml", "services: {}", "docker-compose.yml (several containers)"),
        ("environment/Dockerfile", "FROM a\nWORKDIR /a\nRUN --mount=type=cache,target=/c make\n", "RUN with --mount"),
        ("environment/Dockerfile", "FROM a\nWORKDIR /a\nRUN <<EOF\ntrue\nEOF\n", "a here-document"),
        ("environment/Dockerfile", 'FROM a\nWORKDIR /a\nENTRYPOINT ["/start"]\n', "an ENTRYPOINT"),
        ("environment/Dockerfile", "FROM a\n", "no WORKDIR that can be told; give [environment] workdir in task.toml"),
    ],
)
def test_what_cannot_be_built_is_named(make: Make, file: str, text: str, why: str) -> None:
    """The first start of a task fails on each node, minutes after its import."""
    found, (said,) = read_tasks(make("", **{file: text}))
    assert not found and why in said, said


@pytest.mark.parametrize(
    ("dockerfile", "toml", "users"),
    [
        ("USER ann", "", ("ann", "ann")),
        ("USER ann:staff\nRUN true\nuser 1000:1000", "", ("1000", "1000")),
        ("USER ann\nUSER root", "", ("", "")),
        ("USER ann", "[agent]\nuser = 'root'\n[verifier]\nuser = 'bob'", ("", "bob")),
        ("USER ann", "[environment]\ndocker_image = 'task:1'\nworkdir = '/app'", ("", "")),
        ("USER ann\nFROM debian\nWORKDIR /app", "", ("", "")),  # of another stage
        ("USER $NAME", "[agent]\nuser = 'ann'\n[verifier]\nuser = 'bob'", ("ann", "bob")),
    ],
)
def test_the_image_may_name_the_user(make: Make, dockerfile: str, toml: str, users: tuple[str, str]) -> None:
    """The agent is root, and reads what the task's author kept from it by file modes. Harbor goes by the image."""
    file = {"environment/Dockerfile": f"FROM debian\nWORKDIR /app\n{dockerfile}\n"}
    instance, grader = imported(make(toml, **file))
    assert (instance.sandbox.user, grader.user) == users


def test_the_image_of_a_verifier_may_name_its_user(make: Make) -> None:
    """Tests that run as another user than their author meant find no reward file that they may write."""
    config = "[verifier]\nenvironment_mode = 'separate'"
    files = {"tests/Dockerfile": "FROM a\nUSER bob\n", "environment/Dockerfile": "FROM a\nWORKDIR /app\nUSER ann\n"}
    instance, grader = imported(make(config, **files))
    assert (instance.sandbox.user, grader.user) == ("ann", "bob")


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        ("VOLUME /app/data", "VOLUME /app/data in environment/Dockerfile, because no grading sees"),
        ('VOLUME ["/var/db", "/app"]', "VOLUME /app in"),
        ("VOLUME /", "VOLUME / in"),
        ("VOLUME $DATA", "VOLUME $DATA in"),
        ("USER $NAME", "a USER that cannot be told; give [verifier] user in task.toml"),
    ],
)
def test_work_in_a_volume_would_be_lost(make: Make, volume: str, why: str) -> None:
    """What an agent wrote there is not taken: 0.0, and no mask."""
    found, (said,) = read_tasks(make("", **{"environment/Dockerfile": f"FROM a\nWORKDIR /app\n{volume}\n"}))
    assert not found and why in said, said


def test_other_volumes_are_taken(make: Make) -> None:
    """A task that keeps its database in a volume cannot be imported."""
    imported(make("", **{"environment/Dockerfile": "FROM a\nWORKDIR /app\nVOLUME /var/lib/db /application\n"}))


def test_a_verifier_without_a_directory_is_told_which_section_gives_it(make: Make) -> None:
    """The author adds `workdir` to [environment], and the import refuses the task again."""
    config, file = "[verifier]\nenvironment_mode = 'separate'", "tests/Dockerfile"
    found, (said,) = read_tasks(make(config, **{file: "FROM a\nWORKDIR $HERE\n"}))
    assert not found and f"{file} has no WORKDIR" in said and "[verifier.environment] workdir" in said, said


def test_a_verifier_begins_in_the_root_folder(make: Make) -> None:
    """Harbor takes a verifier whose Dockerfile names no WORKDIR; such tasks were refused."""
    config, file = "[verifier]\nenvironment_mode = 'separate'", "tests/Dockerfile"
    (task,), _ = read_tasks(make(config, **{file: "FROM a\nCOPY test.sh /tests/test.sh\n"}))
    assert isinstance(task.grader, HarborGrader) and task.grader.workdir == "/"


def test_everything_that_is_missing_is_told_at_once(make: Make) -> None:
    """Whoever imports a set mends one key after the other."""
    _, (why,) = read_tasks(make("[environment]\ngpus = 1\nos = 'windows'", **{"environment/compose.yaml": ""}))
    assert "os = 'windows'; [environment] gpus; environment/compose.yaml (several containers)" in why


def test_one_refused_task_keeps_no_other_out(make: Make, tmp_path: Path) -> None:
    """A registry with one compose task cannot be imported at all."""
    task = make()
    other = tmp_path / "other"
    other.mkdir()
    (other / "task.toml").write_text("")
    found, refused = read_tasks(task.parent)
    assert [instance.instance_id for instance in found] == ["some-task"]
    assert len(refused) == 1 and "tests/test.sh is missing" in refused[0]
    with pytest.raises(MalformedRequest, match=r"holds no task\.toml"):
        read_tasks(task / "tests")


def test_a_prebuilt_image_needs_no_dockerfile(make: Make) -> None:
    """terminal-bench's tasks name an image beside their Dockerfile; Harbor uses that."""
    folder = make("[environment]\ndocker_image = 'acme/task:1'\nallow_internet = false")
    instance, grader = imported(folder, "/root", "/etc/nginx")
    assert (instance.sandbox.images, instance.sandbox.build) == (("acme/task:1",), None)
    assert (instance.sandbox.network, grader.network) == ("none", "none")
    assert grader.carried == ("/app", "/etc/nginx", "/logs/artifacts", "/root")


_TOLD = """
[environment]
skills_dir = '/skills'
[[environment.mcp_servers]]
name = 'db'
transport = 'http'
url = 'http://db/mcp'
headers = { Authorization = 'Bearer ${TOKEN}' }
[[environment.mcp_servers]]
name = 'own'
transport = 'stdio'
command = 'serve'
args = ['-v']
"""


def test_mcp_servers_and_skills_are_told(make: Make) -> None:
    """An agent lacks tools that its task was written for."""
    own = imported(make(_TOLD))[0].sandbox
    assert own.skills_dir == "/skills"
    assert [server.model_dump(exclude_defaults=True) for server in own.mcp_servers] == [
        {
            "name": "db",
            "transport": "streamable-http",
            "url": "http://db/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
        },
        {"name": "own", "transport": "stdio", "command": "serve", "args": ("-v",)},
    ]


def test_the_agents_user(make: Make) -> None:
    """An agent is root in a task that was written for another user."""
    for said, user in {"'agent'": "agent", "1000": "1000", "'root'": "", "0": ""}.items():
        assert imported(make(f"[agent]\nuser = {said}"))[0].sandbox.user == user


_DB = {"environment/docker-compose.yaml": "services: {db: {image: postgres}}"}
_OF_DB = """
artifacts = ['/a/', { source = '/srv/db/', service = 'db' }, { source = '/d', service = 'main' }]
[[verifier.collect]]
command = 'dump'
service = 'db'
user = 70
[[verifier.collect]]
command = 'note'
user = 'clerk'
"""


def test_what_a_separate_verifier_gets_of_services(make: Make) -> None:
    """Evidence in a service is not collected, by another user, or before the agent has ended."""
    _, grader = imported(make(f"{_OF_DB}[verifier]\nenvironment_mode = 'separate'", **_DB))
    assert grader.collect == (Collect(command="dump", service="db", user="70"), Collect(command="note", user="clerk"))
    assert grader.artifacts == (Artifact(service="db", path="/srv/db"),)
    assert grader.carried == ("/a", "/d", "/logs/artifacts")
    _, shared = imported(make(_OF_DB, **_DB))
    assert (shared.collect, shared.artifacts) == ((Collect(command="note", user="clerk"),), ())


@pytest.mark.parametrize("path", ["/a/x", "/", "/tests/x", "/logs", "/logs/artifacts", "/srv"])
def test_no_two_artifacts_share_a_path(make: Make, path: str) -> None:
    """A service's files are taken for the agent's, or take the place of the tests."""
    toml = f"artifacts = ['/a', {{ source = '/srv/db', service = 'db' }}, {{ source = '{path}', service = 'db' }}]"
    _, (why,) = read_tasks(make(f"{toml}\n[verifier]\nenvironment_mode = 'separate'", **_DB))
    assert "of the service 'db' cannot be carried into the grading: it overlaps" in why, why


_SOME = "network_mode = 'allowlist'\nallowed_hosts = ['*.Example.org.', '10.0.0.0/8', '2001:DB8::1', 'a.b']"
_ALLOWED = ("bridge", ("*.example.org", "10.0.0.0/8", "2001:db8::1", "a.b"))


@pytest.mark.parametrize(
    ("toml", "session", "tests"),
    [
        (f"[environment]\n{_SOME}", _ALLOWED, _ALLOWED),
        (f"[agent]\n{_SOME}", _ALLOWED, ("bridge", None)),
        (f"[verifier]\n{_SOME}\n[environment]\nnetwork_mode = 'no-network'", ("none", None), _ALLOWED),
        (f"[environment]\n{_SOME}\n[verifier]\nnetwork_mode = 'public'", _ALLOWED, ("bridge", None)),
        (
            f"[environment]\n{_SOME}\n[verifier.environment]\ndocker_image = 'a/b'\nworkdir = '/v'",
            _ALLOWED,
            ("bridge", None),
        ),
        (f"[verifier]\nenvironment_mode = 'separate'\n[environment]\n{_SOME}", _ALLOWED, _ALLOWED),
        ("[environment]\nnetwork_mode = 'allowlist'", ("none", None), ("none", None)),
    ],
)
def test_each_phase_has_its_allow_list(make: Make, toml: str, session: object, tests: object) -> None:
    """An agent reaches what only its tests may, or the tests lack what they need."""
    instance, grader = imported(make(toml))
    assert (instance.sandbox.network, instance.sandbox.allowed) == session
    assert (grader.network, grader.allowed) == tests


def test_a_health_check_has_harbors_defaults(make: Make) -> None:
    """A start gives up, or waits on, where Harbor's does not."""
    plain, _ = imported(make("[environment.healthcheck]\ncommand = 'curl -sf db:80'"))
    assert plain.sandbox.health == Health(
        test=("bash", "-c", "curl -sf db:80"), interval_s=5, timeout_s=30, retries=3, start_interval_s=5
    )
    toml = "[environment.healthcheck]\ncommand = 'true'\ninterval_sec = 0\nstart_period_sec = 9\ntimeout_sec = 2"
    health = imported(make(toml))[0].sandbox.health
    assert health and (health.interval_s, health.start_period_s, health.timeout_s) == (0.2, 9, 2)


def test_the_same_folder_is_the_same_instance(make: Make) -> None:
    """Each import builds all images again, because the copies of a repository have other times."""
    folder = make()
    first = imported(folder)[0]
    for path in folder.rglob("*"):
        path.chmod(0o700)
    (folder / "environment" / "Dockerfile").touch()
    (folder / "tests" / "test.sh").chmod(0o600)
    for path in folder.rglob("*.md"):
        path.chmod(0o600)
    (folder / "environment" / "Dockerfile").chmod(0o640)
    assert imported(folder)[0].row_sha256 == first.row_sha256
    (folder / "environment" / "Dockerfile").write_text("FROM debian\nRUN true\nWORKDIR /app\n")
    assert imported(folder)[0].sandbox.images != first.sandbox.images


def test_a_folder_with_what_is_no_file_or_with_too_much_is_refused(tmp_path: Path) -> None:
    """An import reads a device for ever, or a data set fills the catalogue."""
    (tmp_path / "big").write_bytes(b"\0" * (9 << 20))
    with pytest.raises(ValueError, match="larger than 8 MiB"):
        packed(tmp_path)
    assert packed(tmp_path / "absent") == ""


@pytest.mark.parametrize(
    ("text", "workdir"),
    [
        ("FROM a\nWORKDIR /x\nWORKDIR y/../z", "/x/z"),
        ("FROM a AS b\nWORKDIR /x\nFROM c\nFROM b", "/x"),
        ("FROM a AS b\nWORKDIR /x\nFROM c", None),
        ("from a\nworkdir '/x'\n# WORKDIR /y", "/x"),
        ("FROM a\nRUN x \\\n  # WORKDIR /c\n  WORKDIR /y\n", None),
        ("FROM a\nENV A=/x\nWORKDIR $A", ""),
        ("FROM a\nWORKDIR x", ""),
    ],
)
def test_the_work_directory_of_a_dockerfile(text: str, workdir: str | None) -> None:
    """The agent's files are taken from another folder than it works in."""
    assert read(text).workdir == workdir
