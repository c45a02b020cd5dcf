"""Instances, patches and gradings of the tiny repository, in the fewest words a test can say them in."""

import asyncio
from collections.abc import Mapping

from sandbox_server.catalogue.instance import ScriptGrader, SwebenchGrader, TaskInstance
from sandbox_server.grading.attempts import Attempts, Retries
from sandbox_server.grading.base import Baseline, Grader, GradeRequest
from sandbox_server.grading.containers import Bounds, Containers, PrestartLimits, SealedImageSource
from sandbox_server.grading.grading import Grading
from sandbox_server.images.workspaces import Workspaces
from sandbox_server.sandbox.base import ContainerSpec, Limits, Role, Runtime, Sandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.verdicts import Verdict
from tests.conformance.grading.calc_repository import FIXED, TESTS, Repository

_UNUSED = "debugging doctest faulthandler junitxml legacypath logging nose pastebin recwarn stepwise tmpdir unittest"
PYTEST = " ".join(["python3 -m pytest -rA -p no:cacheprovider", *(f"-p no:{plugin}" for plugin in _UNUSED.split())])
"""pytest without the plugins that no test here needs: 0.3 s of CPU for a run, with them 0.37."""
_ADDS = "python3 -c 'from calc import add; assert add(2, 3) == 5'"
ENDLESS = FIXED.replace(b"return sum(numbers)", b"__import__('time').sleep(4711)")
"""A fix whose tests do not end, without using the CPU meanwhile."""


class Bench:
    """Instances, patches and gradings of the tiny repository."""

    def __init__(
        self,
        runtime: DockerRuntime,
        image: str,
        repository: Repository,
        graders: dict[str, Grader],
        workspaces: Workspaces,
    ) -> None:
        self.runtime = runtime
        self.image = image
        self.head = repository.head
        self.diff = repository.diff
        self.test_patch = repository.diff(TESTS).decode()
        self.gold_patch = repository.diff({"calc/__init__.py": FIXED}).decode()
        self.workspaces = workspaces
        self.graders = graders
        self.git_home = repository.path.with_name("git")

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

    def scripted(self, **fields: object) -> TaskInstance:
        """For tests that are not of a grader: one command, for half the CPU of a grading by pytest."""
        return self.instance(**{"grader": ScriptGrader(command=_ADDS), **fields})

    def grading(
        self,
        baseline: Baseline | None = None,
        *,
        runtime: Runtime | None = None,
        attempts: int = 3,
        ahead: int = 2,
        **options: str,
    ) -> Grading:
        """A grading as the service has it, with little memory and short pauses."""

        async def stored(instance: TaskInstance) -> Baseline | None:
            return baseline

        return Grading(
            self._containers(runtime or self.runtime, ahead),
            self.graders,
            stored,
            git_home=self.git_home,
            retries=Retries(attempts, pause_s=0.05),
            **options,  # type: ignore[arg-type]  # the policy, by its value
        )

    def attempts(self) -> Attempts:
        """The part of a grading that runs tests."""
        containers = self._containers(self.runtime, ahead=0)
        return Attempts(containers, self.graders, Bounds(), Retries(1), control_kept_s=0.0)

    def _containers(self, runtime: Runtime, ahead: int) -> Containers:
        limits = Limits(memory_mb=512, cpus=1.0)
        return Containers(
            runtime, limits=limits, ahead=PrestartLimits(ahead), sealing=SealedImageSource(self.workspaces.sealed)
        )

    async def grade(
        self, patch: bytes | None, instance: TaskInstance | None = None, *, cause: str = "", by: Grading | None = None
    ) -> Verdict:
        """The verdict on `patch`."""
        request = GradeRequest(instance or self.instance(), patch, sid="4711", patch_cause=cause)
        return await (by or self.grading()).grade(request)

    async def present(self) -> list[str]:
        """Ids of the grading containers that are there."""
        return [container.container_id for container in await self.runtime.list() if container.role is Role.GRADE]

    async def left(self) -> int:
        """How many grading containers stay; a verdict does not wait for the end of its own."""
        for _ in range(1200):
            if not await self.present():
                return 0
            await asyncio.sleep(0.05)
        return len(await self.present())

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
{PYTEST} tests/test_calc.py tests/test_new.py
: '>>>>> End Test Output'
git checkout {self.head} tests/test_calc.py
"""


class Saboteur:
    """The real runtime, but the first `times` grading containers die while the tests run."""

    def __init__(self, runtime: DockerRuntime, times: int) -> None:
        self._runtime = runtime
        self._times = times
        self.created: list[str] = []
        self.killers: list[asyncio.Task[None]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._runtime, name)

    async def create(self, spec: ContainerSpec) -> Sandbox:
        sandbox = await self._runtime.create(spec)
        self.created.append(sandbox.container_id)
        if len(self.created) <= self._times:
            self.killers.append(asyncio.create_task(self._kill(sandbox)))
        return sandbox

    async def _kill(self, sandbox: Sandbox) -> None:
        wait = "until pgrep -f 'm pytest' > /dev/null; do sleep 0.05; done"
        await sandbox.exec(["bash", "-c", wait], timeout_s=30)
        await self._runtime._engine.call(lambda api: api.kill(sandbox.container_id))
