"""Grader for instances of the SWE-bench family: runs their own script, judges by the swebench library."""

import time
from collections.abc import Callable, Mapping

from sandbox_server.catalogue.eval_script import (
    END_MARKER,
    START_MARKER,
    TEST_PATCH_REFUSED,
    EvalScript,
    exit_if_test_patch_refused,
    split,
    without_files,
)
from sandbox_server.catalogue.instance import SwebenchGrader, TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.altering import test_paths
from sandbox_server.grading.base import CleanSandbox, Grader, Judging, TestRun
from sandbox_server.grading.library import LibraryReport, SwebenchLibrary, UnjudgeableLog
from sandbox_server.grading.supervised import (
    Plan,
    SupervisedRun,
    read_texts,
    supervise,
    unplaced_result,
    with_absolute_paths,
)
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.verdicts import VerdictName

LOG_BYTES = 8 << 20
"""Bytes of a log that are kept, half from its head and half from its tail, where pytest's summary is."""

_EXIT_CODE = ">>>>> Test Exit Code"
"""Copy of `swebench.harness.constants.TEST_EXIT_CODE`."""

# Without a network, the script's own `pip install -e .` would retry a missing index for 7 s. Its failure does not
# matter, since the package is installed.
_ENV = {"HOME": "/root", "PIP_RETRIES": "0", "PIP_NO_INDEX": "1"}


class Swebench:
    """Runs the script up to the end of its tests, and has the library judge their output."""

    def __init__(self, judging: Judging | None = None) -> None:
        self._library = SwebenchLibrary(judging)

    @property
    def versions(self) -> Mapping[str, str]:
        """The pinned library's version, because versions 4.1.0 and 5.0.2 judge the same log differently."""
        return {"swebench": self._library.version}

    async def close(self) -> None:
        """Stop the library's worker process."""
        await self._library.close()

    async def prepare(self, instance: TaskInstance) -> None:
        """Check the script, and start the library's worker, which takes seconds."""
        await self._library.script(instance)
        _cut(instance)

    async def run(
        self,
        instance: TaskInstance,
        sandbox: Sandbox,
        *,
        timeout_s: float,
        altered: Mapping[str, bytes] | None = None,
        clean: CleanSandbox | None = None,
    ) -> TestRun:
        """See `Grader.run`. After a timeout no log is judged, as in the library's own harness."""
        script = _cut(instance)
        files = with_absolute_paths(instance.sandbox.workdir, altered)
        # Code that reads the supervisor's memory must not find the true text of an altered file there.
        setup = exit_if_test_patch_refused(without_files(script.setup, instance.test_patch, altered or ()))
        run = await _supervise(instance, sandbox, _plan(setup, script.tests, files), timeout_s)
        if run.timed_out:
            limit = f"Timeout error: {timeout_s:g} seconds exceeded."
            cause = f"the tests ran past their limit of {timeout_s:g} s"
            return self._without_results(VerdictName.TIMEOUT, cause, run, f"\n\n{limit}")
        if run.unplaced:
            return unplaced_result(run)
        if not run.started:
            applied = run.status != TEST_PATCH_REFUSED
            cause = (
                "the script never reached the tests" if applied else "the tests' own patch does not apply to the tree"
            )
            return self._without_results(VerdictName.NO_RESULTS, cause, run)
        if run.exit_code is None:
            return self._without_results(VerdictName.NO_RESULTS, "the tests began and never ended", run)
        if forged := next((mark for mark in (START_MARKER, END_MARKER, _EXIT_CODE) if mark in run.log), None):
            cause = f"the tests printed a line of the judge's own, {forged!r}, so their log is not judged"
            return self._without_results(VerdictName.NO_RESULTS, cause, run)
        began = time.monotonic()
        try:
            report = await self._library.report(instance, framed(run.log, run.exit_code))
        except UnjudgeableLog as error:
            cause = f"the log of its tests cannot be judged: {error}"
            return self._without_results(VerdictName.NO_RESULTS, cause, run)
        name, cause = judge(instance, report)
        if run.dropped and name is not VerdictName.RESOLVED:
            cause += f"; {run.dropped} bytes in the middle of its log were not kept"
        failed = {*report.f2p_failed, *report.p2p_failed}
        return TestRun(
            name,
            cause,
            f2p_count=report.f2p_count,
            p2p_count=report.p2p_count,
            f2p_failed=report.f2p_failed,
            p2p_failed=report.p2p_failed,
            exit_code=run.exit_code,
            timings_s={"tests": run.duration_s, "parse": time.monotonic() - began},
            versions=self.versions,
            log_tail=run.log[-4000:],
            passed=frozenset({*instance.fail_to_pass, *instance.pass_to_pass} - failed if report.usable else ()),
            log=run.log,
        )

    async def test_files(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> Mapping[str, bytes]:
        """The files that the test patch changes or adds."""
        run = await _supervise(instance, sandbox, _plan(_cut(instance).setup), timeout_s)
        if run.exit_code is None:
            raise GraderBroken(f"the set-up of the tests did not end: {run.setup_log[-300:]}")
        return await read_texts(sandbox, instance.sandbox.workdir, test_paths(instance))

    def _without_results(self, name: VerdictName, cause: str, run: SupervisedRun, end: str = "") -> TestRun:
        return TestRun(
            name,
            cause,
            f2p_count=0,
            p2p_count=0,
            exit_code=run.status,
            timings_s={"tests": run.duration_s},
            versions=self.versions,
            log_tail=((run.log or run.setup_log) + end)[-4000:],
            log=run.log,
        )


def framed(log: str, exit_code: int) -> str:
    """The tests' output in the form the library parses, with the lines its script prints under `set -x`."""
    return f"""+ : '{START_MARKER}'
{log}
+ SWEBENCH_TEST_EXIT_CODE={exit_code}
+ : '{END_MARKER}'
+ echo '{_EXIT_CODE}: {exit_code}'
{_EXIT_CODE}: {exit_code}
"""


def _plan(setup: str, tests: str = "", files: Mapping[str, bytes] | None = None) -> Plan:
    # One bash for set-up and tests, as in the library's own harness.
    return Plan(tests, setup=setup, files=files or {}, alone=False, name="/eval.sh")


def _cut(instance: TaskInstance) -> EvalScript:
    assert isinstance(instance.grader, SwebenchGrader)  # the registry chose by kind
    try:
        return split(instance.grader.eval_script)
    except ValueError as error:
        raise GraderBroken(f"the eval_script of {instance.instance_id} cannot be used: {error}") from error


async def _supervise(instance: TaskInstance, sandbox: Sandbox, plan: Plan, timeout_s: float) -> SupervisedRun:
    cwd = instance.sandbox.workdir
    return await supervise(sandbox, plan, timeout_s=timeout_s, cwd=cwd, env=_ENV, keep_bytes=LOG_BYTES)


def judge(instance: TaskInstance, report: LibraryReport) -> tuple[VerdictName, str]:
    """The verdict and its cause. The library decides; its guess at a reason is only quoted.

    Without results that the library trusts, the verdict is `no_results`. One such case is a log in which every test
    passed although the test command exited with non-zero: it does not describe the run that happened.
    """
    if report.usable:
        f2p = f"{report.f2p_count} of {len(instance.fail_to_pass)} F2P"
        p2p = f"{report.p2p_count} of {len(instance.pass_to_pass)} P2P"
        name = VerdictName.RESOLVED if report.resolved else VerdictName.UNRESOLVED
        return name, f"{f2p} and {p2p} tests pass"
    if not report.started:
        cause = "the script never reached the tests"
    elif not report.ended:
        cause = "the tests began and never ended"
    elif report.exit_code:
        cause = f"no results that agree with the test command's exit code {report.exit_code}"
    else:
        cause = "the tests gave no results that could be parsed"
    return VerdictName.NO_RESULTS, cause + (f" (swebench guesses: {report.reason})" if report.reason else "")


GRADER: Callable[[Judging], Grader] = Swebench
