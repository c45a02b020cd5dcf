"""Judges by an exit code: 0 is resolved, anything else is not. The command counts as the only F2P test."""

from collections.abc import Mapping

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import Judging, TestRun
from sandbox_server.grading.supervised import Plan, SupervisedRun, supervise, unplaced_result, with_absolute_paths
from sandbox_server.sandbox.base import DEFAULT_ACTIVATION, Sandbox
from sandbox_server.verdicts import Score, VerdictName

_LOG_BYTES = 1 << 20


class ByExitCode:
    """Grader that needs no library and no bounds on judging."""

    def __init__(self, judging: Judging | None = None) -> None:
        """`judging` has no effect: an exit code is all that is judged."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Empty: no library judges."""
        return {}

    async def close(self) -> None:
        """Nothing to close."""

    async def prepare(self, instance: TaskInstance) -> None:
        """Nothing to prepare."""


async def run_command(
    instance: TaskInstance, sandbox: Sandbox, command: str, *, files: Mapping[str, bytes], timeout_s: float
) -> TestRun:
    """Run `command` with bash in the instance's workdir, as root and with its activation, after writing `files`.

    Raises:
        SandboxLost, EngineUnavailable.

    """
    workdir = instance.sandbox.workdir
    run = await supervise(
        sandbox,
        Plan(command, setup=instance.sandbox.activate or DEFAULT_ACTIVATION, files=with_absolute_paths(workdir, files)),
        timeout_s=timeout_s,
        cwd=workdir,
        env={"HOME": "/root"},
        keep_bytes=_LOG_BYTES,
    )
    if run.unplaced and not run.timed_out:
        return unplaced_result(run)
    found = broken_off(run, "command", timeout_s)
    if found is None:
        name = VerdictName.RESOLVED if run.exit_code == 0 else VerdictName.UNRESOLVED
        found = name, f"the command exited with {run.exit_code}"
    return test_run(run, *found)


def broken_off(run: SupervisedRun, what: str, timeout_s: float) -> tuple[VerdictName, str] | None:
    """Verdict and cause of a run in which `what`, such as "tests", did not end; None if it did."""
    if run.timed_out:
        return VerdictName.TIMEOUT, f"the {what} ran past the limit of {timeout_s:g} s"
    if run.exit_code is None:
        return VerdictName.NO_RESULTS, f"the shell that ran the {what} was ended ({run.status})"
    return None


def test_run(run: SupervisedRun, name: VerdictName, cause: str, score: Score | None = None) -> TestRun:
    """The result of a run; all of its tests count as one F2P test."""
    return TestRun(
        name,
        cause,
        f2p_count=int(name is VerdictName.RESOLVED),
        p2p_count=0,
        exit_code=run.status,
        timings_s={"tests": run.duration_s},
        log_tail=(run.log or run.setup_log)[-4000:],
        log=run.log,
        score=score,
    )
