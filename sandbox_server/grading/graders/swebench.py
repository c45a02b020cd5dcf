"""Instances of the SWE-bench family: their own script, judged by the swebench library."""

import time
from collections.abc import Mapping

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.grading.base import Grader, TestRun
from sandbox_server.grading.library import LibraryReport, SwebenchLibrary
from sandbox_server.records import VerdictName
from sandbox_server.sandbox.base import Sandbox

LOG_BYTES = 8 << 20
"""Kept of a log, half from its head and half from its tail: the markers and pytest's summary are at the ends."""

_SCRIPT = "/eval.sh"

# Without a network the script's own `pip install -e .` would retry an absent index for 7 s; its failure changes
# nothing, for the package is installed.
_ENV = {"HOME": "/root", "PIP_RETRIES": "0", "PIP_NO_INDEX": "1"}


class Swebench:
    """Runs the script unchanged but for the exit code that the library has it record, and asks the library."""

    def __init__(self) -> None:
        self._library = SwebenchLibrary()

    @property
    def versions(self) -> Mapping[str, str]:
        """The pinned library: 4.1.0 and 5.0.2 give different verdicts on the same log."""
        return {"swebench": self._library.version}

    async def close(self) -> None:
        """End the library's worker process."""
        await self._library.close()

    async def prepare(self, instance: TaskInstance) -> Mapping[str, str]:
        """The script; the library's worker, which takes seconds to start, runs then."""
        return {_SCRIPT: await self._library.script(instance)}

    async def run(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> TestRun:
        """See `Grader.run`. Past the limit no log is judged, as in the library's own harness."""
        # The markers are printed by `set -x`, on stderr: one stream, and no terminal, whose colours break parsers.
        result = await sandbox.exec(
            ["bash", _SCRIPT],
            timeout_s=timeout_s,
            cwd=instance.sandbox.workdir,
            env=_ENV,
            user="root",
            merge_streams=True,
            keep_bytes=LOG_BYTES,
        )
        test_log = result.stdout.text()
        if result.timed_out:
            test_log += f"\n\nTimeout error: {timeout_s:g} seconds exceeded."
            return TestRun(
                VerdictName.TIMEOUT,
                f"the tests ran past their limit of {timeout_s:g} s",
                f2p_count=0,
                p2p_count=0,
                timings_s={"tests": result.duration_s},
                versions=self.versions,
                log_tail=test_log[-4000:],
            )
        began = time.monotonic()
        report = await self._library.report(instance, test_log)
        name, cause = judge(instance, report)
        if result.stdout.dropped and name is not VerdictName.RESOLVED:
            cause += f"; {result.stdout.dropped} bytes in the middle of its log were not kept"
        return TestRun(
            name,
            cause,
            f2p_count=report.f2p_count,
            p2p_count=report.p2p_count,
            f2p_failed=report.f2p_failed,
            p2p_failed=report.p2p_failed,
            # Without a recorded one the tests never got that far: 137 then tells of a kill.
            exit_code=report.exit_code if report.exit_code is not None else result.exit_code,
            timings_s={"tests": result.duration_s, "parse": time.monotonic() - began},
            versions=self.versions,
            log_tail=test_log[-4000:],
        )


def judge(instance: TaskInstance, report: LibraryReport) -> tuple[VerdictName, str]:
    """The verdict and its cause; the library's word is final, its guess at a reason is only repeated.

    No trusted results is `no_results`, also where every test claims to have passed and the test command exited
    non-zero: such a log does not describe the run that happened.
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


GRADER: type[Grader] = Swebench
