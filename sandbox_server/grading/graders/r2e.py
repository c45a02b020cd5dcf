"""Grader for R2E-Gym: pytest's summary must name exactly the expected tests, each with its expected status."""

import re
from collections.abc import Callable, Mapping

from sandbox_server.catalogue.importers.r2egym import KEPT
from sandbox_server.catalogue.instance import R2eGrader, TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.base import CleanSandbox, Grader, Judging, TestRun
from sandbox_server.grading.exit_code import ByExitCode, broken_off, test_run
from sandbox_server.grading.supervised import Plan, read_texts, supervise, unplaced_result, with_absolute_paths
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.verdicts import VerdictName

_LOG_BYTES = 8 << 20
_LINK = f"rm -rf -- r2e_tests && ln -s -- {KEPT}/r2e_tests r2e_tests || exit 96\n"
_HEAD = re.compile(r"^=+ short test summary info =+\s*$", re.MULTILINE)
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_WORDS = ("PASSED", "FAILED", "ERROR")


class R2e(ByExitCode):
    """Runs the hidden script; a failing test that is expected to fail must fail. Skipped tests are not counted."""

    async def prepare(self, instance: TaskInstance) -> None:
        """Check that the instance names tests."""
        assert isinstance(instance.grader, R2eGrader)  # the registry chose by kind
        if not instance.grader.expected:
            raise GraderBroken("the instance expects no test, so a run without tests would resolve it")

    async def run(
        self,
        instance: TaskInstance,
        sandbox: Sandbox,
        *,
        timeout_s: float,
        altered: Mapping[str, bytes] | None = None,
        clean: CleanSandbox | None = None,
    ) -> TestRun:
        """See `Grader.run`."""
        assert isinstance(instance.grader, R2eGrader)  # the registry chose by kind
        workdir = instance.sandbox.workdir
        run = await supervise(
            sandbox,
            Plan(f"bash {KEPT}/run_tests.sh", _LINK + instance.sandbox.activate, with_absolute_paths(workdir, altered)),
            timeout_s=timeout_s,
            cwd=workdir,
            env={"HOME": "/root"},
            keep_bytes=_LOG_BYTES,
        )
        if run.unplaced:
            return unplaced_result(run)
        return test_run(run, *(broken_off(run, "tests", timeout_s) or judged(run.log, instance.grader.expected)))

    async def test_files(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> Mapping[str, bytes]:
        """The hidden tests."""
        found = await sandbox.exec(
            ["find", f"{KEPT}/r2e_tests", "-name", "*.py", "-type", "f", "-print0"], timeout_s=timeout_s, user="root"
        )
        paths = sorted(path for path in found.stdout.text().split("\0") if path)
        return await read_texts(sandbox, instance.sandbox.workdir, paths)


def judged(log: str, expected: Mapping[str, str]) -> tuple[VerdictName, str]:
    """Verdict and cause. Colours and anything after ` - ` do not belong to a test's name."""
    plain = _COLOR.sub("", log).replace("\r", "")
    heads = list(_HEAD.finditer(plain))
    if len(heads) != 1:
        found = "no summary" if not heads else f"{len(heads)} summaries, of which it prints one itself"
        return VerdictName.NO_RESULTS, f"the tests' log has {found}"
    wanted = {_name(name): status for name, status in expected.items()}
    statuses = _statuses(plain[heads[0].end() :])
    wrong = sorted(name for name in wanted.keys() | statuses.keys() if wanted.get(name) != statuses.get(name))
    if not wrong:
        return VerdictName.RESOLVED, f"all {len(wanted)} tests end as expected"
    first = f"{wrong[0]} is {statuses.get(wrong[0], 'missing')}, not {wanted.get(wrong[0], 'missing')}"
    return VerdictName.UNRESOLVED, f"{len(wrong)} of {len(wanted)} tests do not end as expected: {first}"


def _statuses(summary: str) -> dict[str, str]:
    """Test -> its last status. Pytest lists passed tests first, so a PASSED after another status is forged."""
    found: dict[str, str] = {}
    for line in summary.splitlines():
        if word := next((word for word in _WORDS if word in line), ""):
            name = _name(".".join(line.strip().split("::")[1:]))
            found[name] = found.get(name, word) if word == "PASSED" else word
    return found


def _name(name: str) -> str:
    return _COLOR.sub("", name).split(" - ")[0]


GRADER: Callable[[Judging], Grader] = R2e
