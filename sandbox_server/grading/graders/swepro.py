"""Grader for SWE-bench Pro: the instance's own script runs the tests, its own parser reads their output."""

import asyncio
import json
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from shlex import quote

from sandbox_server.catalogue.instance import SweproGrader, TaskInstance
from sandbox_server.catalogue.swepro import TESTS_FOLDER, tests_checkout_of
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.altering import test_paths
from sandbox_server.grading.base import CleanSandbox, Grader, Judging, TestRun
from sandbox_server.grading.supervised import (
    Plan,
    SupervisedRun,
    read_texts,
    supervise,
    unplaced_result,
    with_absolute_paths,
)
from sandbox_server.sandbox.base import DEFAULT_ACTIVATION, ExecResult, Sandbox
from sandbox_server.verdicts import VerdictName

RESULT_BYTES = 8 << 20
"""Limit on the parser's result; a run of 50,000 tests is below it."""

_PARSE_S = 90.0  # below `Bounds.judge_s`
_TESTS_REFUSED = 96

_LOG_BYTES = 16 << 20
"""Bytes of the tests' output that are kept, half of it for each stream."""

_SCRIPT = "/swepro/run_script.sh"
"""`$0` of the script; no such file exists."""

# Remove what the patch left at the tests' paths first: a link there would redirect the copy.
_LAY = f"""
(
    set -o pipefail
    tests={TESTS_FOLDER}
    (cd "$tests" && find . ! -type d -print0) | xargs -0 rm -rf -- && cp -RP "$tests/." . && rm -rf "$tests"
) || exit {_TESTS_REFUSED}
"""

# Arguments: sizes of the parser and of the tests' two streams, all of which come on stdin.
_PARSE = """
folder=$(mktemp -d) && cd "$folder" || exit
head -c "$1" > parser.py && head -c "$2" > stdout.log && head -c "$3" > stderr.log || exit
"$(type -P python3 || type -P python)" parser.py stdout.log stderr.log "$folder/result.json" > said 2>&1 < /dev/null
code=$?
tail -c 1500 said >&2
[[ -f result.json ]] && cat result.json
exit "$code"
"""


class Swepro:
    """Runs the script with the selected files, then the parser; resolved if all required tests passed.

    Both run as root in the image's environment: the script with the instance's activation, the parser in another
    container, which the patch has never touched.
    """

    def __init__(self, judging: Judging | None = None) -> None:
        """Needs no bounds: the parser gives a list of tests."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Empty: the instance's own parser judges, no library does."""
        return {}

    async def close(self) -> None:
        """Nothing to close."""

    async def prepare(self, instance: TaskInstance) -> None:
        """Check that the instance names tests."""
        assert isinstance(instance.grader, SweproGrader)  # the registry chose by kind
        if not instance.fail_to_pass and not instance.pass_to_pass:
            raise GraderBroken("the instance names no test that must pass, so no run could tell whether it is resolved")

    async def run(
        self,
        instance: TaskInstance,
        sandbox: Sandbox,
        *,
        timeout_s: float,
        altered: Mapping[str, bytes] | None = None,
        clean: CleanSandbox | None = None,
    ) -> TestRun:
        """See `Grader.run`. If the parser gives no list of tests, there are no results."""
        grader = instance.grader
        assert isinstance(grader, SweproGrader)  # the registry chose by kind
        if clean is None:
            raise GraderBroken("the parser needs a container of its own, but none could be created")
        files = with_absolute_paths(instance.sandbox.workdir, altered)
        tests = f"bash -c {quote(grader.run_script)} {_SCRIPT} {quote(','.join(grader.selected_test_files))}"
        plan = Plan(tests, _setup(instance), files, merged=False)
        tested: asyncio.Future[SupervisedRun] = asyncio.get_running_loop().create_future()
        parsing = asyncio.create_task(_parse(grader, clean, tested))  # its container is created while the tests run
        try:
            run = await supervise(
                sandbox,
                plan,
                timeout_s=timeout_s,
                cwd=instance.sandbox.workdir,
                env={"HOME": "/root"},
                keep_bytes=_LOG_BYTES // 2,
            )
            if ended := _without_results(run, timeout_s):
                return ended
            tested.set_result(run)
            parsed = await parsing
        finally:
            parsing.cancel()
            await asyncio.gather(parsing, return_exceptions=True)
        return _judged(instance, run, parsed)

    async def test_files(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> Mapping[str, bytes]:
        """The selected files, and the files that F2P test names begin with."""
        cwd = instance.sandbox.workdir
        plan = Plan("", _setup(instance))
        run = await supervise(sandbox, plan, timeout_s=timeout_s, cwd=cwd, env={"HOME": "/root"}, keep_bytes=1 << 16)
        if run.exit_code is None:
            raise GraderBroken(f"the tests could not be laid into the tree: {run.setup_log[-300:]}")
        return await read_texts(sandbox, instance.sandbox.workdir, test_paths(instance))


def _setup(instance: TaskInstance) -> str:
    """Shell text that places the tests over the patch, removes their other copy, and activates the environment."""
    activation = instance.sandbox.activate or DEFAULT_ACTIVATION
    return f"{_LAY if tests_checkout_of(instance) else ''}\n{activation}"


async def _parse(grader: SweproGrader, clean: CleanSandbox, tested: asyncio.Future[SupervisedRun]) -> ExecResult:
    async with clean() as sandbox:
        run = await tested
        parts = [grader.parser_script.encode(), run.stdout.text().encode(), run.stderr.encode()]
        return await sandbox.exec(
            ["bash", "-c", _PARSE, "parse", *(str(len(part)) for part in parts)],
            timeout_s=_PARSE_S,
            stdin=b"".join(parts),
            cwd="/",
            env={"HOME": "/root"},
            user="root",
            keep_bytes=RESULT_BYTES,
        )


def _without_results(run: SupervisedRun, timeout_s: float) -> TestRun | None:
    """The result if there is nothing to parse; else None."""
    tail = run.stderr[-2000:] + run.stdout.text()[-2000:]
    timings_s = {"tests": run.duration_s}
    if run.timed_out:
        cause = f"the tests ran past their limit of {timeout_s:g} s"
        return TestRun(VerdictName.TIMEOUT, cause, 0, 0, timings_s=timings_s, log_tail=tail, log=run.log)
    if run.unplaced:
        return unplaced_result(run)
    if run.status == _TESTS_REFUSED and not run.started:
        cause = f"the tests cannot be laid over the patch: {run.setup_log[-300:]}"
        return TestRun(VerdictName.NO_RESULTS, cause, 0, 0, exit_code=run.status, log_tail=run.setup_log[-4000:])
    if run.exit_code is None:
        cause = f"the shell that ran the tests was ended ({run.status})"
        none = TestRun(VerdictName.NO_RESULTS, cause, 0, 0, exit_code=run.status, timings_s=timings_s)
        return replace(none, log_tail=tail or run.setup_log[-4000:], log=run.log)
    return None


def _judged(instance: TaskInstance, run: SupervisedRun, parsed: ExecResult) -> TestRun:
    passed = None if parsed.timed_out or parsed.stdout.dropped else passed_tests(parsed.stdout.text())
    f2p_failed, p2p_failed = (
        tuple(test for test in names if test not in (passed or ()))
        for names in (instance.fail_to_pass, instance.pass_to_pass)
    )
    f2p, p2p = len(instance.fail_to_pass), len(instance.pass_to_pass)
    f2p_count, p2p_count = f2p - len(f2p_failed), p2p - len(p2p_failed)
    if passed is None:
        name, cause = VerdictName.NO_RESULTS, _why_none(parsed)
    else:
        name = VerdictName.UNRESOLVED if f2p_failed or p2p_failed else VerdictName.RESOLVED
        cause = f"{f2p_count} of {f2p} F2P and {p2p_count} of {p2p} P2P tests pass"
    tails = (run.stderr, run.stdout.text(), parsed.stderr.text())
    return TestRun(
        name,
        cause,
        f2p_count=f2p_count,
        p2p_count=p2p_count,
        f2p_failed=f2p_failed,
        p2p_failed=p2p_failed,
        exit_code=run.exit_code,
        timings_s={"tests": run.duration_s, "parse": parsed.duration_s},
        log_tail="".join(tail[-1500:] for tail in tails)[-4000:],
        passed=frozenset((passed or frozenset()) & {*instance.fail_to_pass, *instance.pass_to_pass}),
        log=run.log,
    )


def passed_tests(result: str) -> Set[str] | None:
    """Names with status PASSED in the parser's result; None if that is no list of tests, or an empty one."""
    try:
        tests = json.loads(result)["tests"]
        statuses = [(test["name"], test["status"]) for test in tests]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return frozenset(str(name) for name, status in statuses if status == "PASSED") if statuses else None


def _why_none(parsed: ExecResult) -> str:
    """Why the parser gave no list of tests."""
    if parsed.timed_out:
        return f"the parser did not end within {_PARSE_S:g} s"
    if parsed.stdout.dropped:
        return f"the parser's result is longer than {RESULT_BYTES >> 20} MiB"
    if parsed.exit_code:
        return f"the parser failed with {parsed.exit_code} and gave no list of tests"
    return "the parser found no tests"


GRADER: Callable[[Judging], Grader] = Swepro
