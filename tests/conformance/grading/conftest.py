"""The tiny repository in an image of its own, and gradings of it on the real engine."""

import os
import secrets
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from calc_repository import FIXED, TESTS, Repository

from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable, ImageUnavailable
from sandbox_server.grading.base import Baseline, Grader, GradeRequest
from sandbox_server.grading.grading import Grading
from sandbox_server.grading.registry import load_graders
from sandbox_server.records import Verdict
from sandbox_server.sandbox.base import ContainerSpec, Limits, Role, Runtime
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime, RuntimeConfig

_BASE_IMAGE = "sandbox-samples/base:latest"


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("grading") / "calc")


@pytest.fixture(scope="session")
async def runtime() -> AsyncIterator[DockerRuntime]:
    """The real engine, under a node name of this run alone; no container of it outlives the run."""
    runtime = DockerRuntime(
        Engine(None, timeout_s=60), RuntimeConfig(node=f"test-grading-{secrets.token_hex(4)}", pull=False)
    )
    try:
        await runtime.ping()
        await runtime.resolve_image([_BASE_IMAGE])
    except (EngineUnavailable, ImageUnavailable) as error:
        runtime.close()
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(error.detail)
    yield runtime
    left = await runtime.list()
    for container in left:
        await runtime.remove(container.container_id)
    runtime.close()
    assert not left, f"{len(left)} grading containers were left behind"


@pytest.fixture(scope="session")
async def image(
    runtime: DockerRuntime, repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """The repository at /testbed on the base image."""
    bundle = tmp_path_factory.mktemp("bundle") / "calc.bundle"
    repository.git("bundle", "create", "-q", str(bundle), "HEAD")
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    sandbox = await runtime.create(ContainerSpec(_BASE_IMAGE, Role.PREPARE, "", deadline, with_shell=False))
    name = f"sandbox-test/grading:{secrets.token_hex(6)}"
    try:
        await sandbox.write_file("/calc.bundle", bundle.read_bytes())
        script = (
            f"git clone -q /calc.bundle /testbed && cd /testbed && git checkout -q {repository.head} && rm /calc.bundle"
        )
        made = await sandbox.exec(["bash", "-c", script], timeout_s=60, merge_streams=True)
        assert made.exit_code == 0, made.stdout.text()
        await runtime.commit(sandbox, name)
    finally:
        await runtime.remove(sandbox.container_id)
    yield name
    await runtime._engine.call(lambda api: api.remove_image(name, force=True))


class Bench:
    """Instances, patches and gradings of the tiny repository."""

    def __init__(self, runtime: DockerRuntime, image: str, repository: Repository, graders: dict[str, Grader]) -> None:
        self.runtime = runtime
        self.image = image
        self.head = repository.head
        self.diff = repository.diff
        self.test_patch = repository.diff(TESTS).decode()
        self.gold_patch = repository.diff({"calc/__init__.py": FIXED}).decode()
        self._graders = graders

    def instance(self, *, box: Mapping[str, object] | None = None, **fields: object) -> TaskInstance:
        """Graded as SWE-bench does unless `fields` name another grader; `box` are fields of its sandbox."""
        given = {
            "instance_id": "calc__calc-1",
            "repo": "calc/calc",
            "version": "1.0",
            "base_commit": self.head,
            "sandbox": {"images": (self.image,), **(box or {})},
            "grader": SwebenchGrader(
                eval_script=self._script(), log_parser="parse_log_pytest", new_test_files=("tests/test_new.py",)
            ),
            "test_patch": self.test_patch,
            "gold_patch": self.gold_patch,
            "fail_to_pass": ("tests/test_calc.py::test_add", "tests/test_new.py::test_many"),
            "pass_to_pass": ("tests/test_calc.py::test_mul",),
            "eval_timeout_s": 60.0,
        }
        return TaskInstance.model_validate(given | fields)

    def grading(
        self, baseline: Baseline | None = None, *, runtime: Runtime | None = None, attempts: int = 3, **options: str
    ) -> Grading:
        """A grading as the service has it, with little memory and short pauses."""

        async def stored(instance: TaskInstance) -> Baseline | None:
            return baseline

        return Grading(
            runtime or self.runtime,
            self._graders,
            stored,
            limits=Limits(memory_mb=512, cpus=1.0),
            attempts=attempts,
            retry_pause_s=0.05,
            **options,  # type: ignore[arg-type]  # the policy, by its value
        )

    async def grade(
        self, patch: bytes | None, instance: TaskInstance | None = None, *, cause: str = "", by: Grading | None = None
    ) -> Verdict:
        """The verdict on `patch`."""
        request = GradeRequest(instance or self.instance(), patch, sid="4711", patch_cause=cause)
        return await (by or self.grading()).grade(request)

    async def left(self) -> int:
        """Grading containers that are there."""
        return len([container for container in await self.runtime.list() if container.role is Role.GRADE])

    def _script(self) -> str:
        return f"""#!/bin/bash
set -uxo pipefail
cd /testbed
git config --global --add safe.directory /testbed
git status
git show
git -c core.fileMode=false diff {self.head}
git checkout {self.head} tests/test_calc.py
git apply -v - <<'EOF_114329324912'
{self.test_patch}
EOF_114329324912
: '>>>>> Start Test Output'
python3 -m pytest -rA -p no:cacheprovider tests/test_calc.py tests/test_new.py
: '>>>>> End Test Output'
git checkout {self.head} tests/test_calc.py
"""


@pytest.fixture(scope="session")
async def bench(runtime: DockerRuntime, image: str, repository: Repository) -> AsyncIterator[Bench]:
    """One set of graders for all tests: the library's worker takes seconds to start."""
    graders = load_graders()
    yield Bench(runtime, image, repository, graders)
    for grader in graders.values():
        await grader.close()
