"""Instances of SWE-bench Pro: their own script runs the tests, their own parser reads what it printed."""

import json
from collections.abc import Mapping, Set
from shlex import quote

from sandbox_server.catalogue.instance import SweproGrader, TaskInstance
from sandbox_server.errors import GraderBroken
from sandbox_server.grading.base import Grader, TestRun
from sandbox_server.grading.ladder import GIT_ENV
from sandbox_server.records import VerdictName
from sandbox_server.sandbox.base import DEFAULT_ACTIVATION, ExecResult, Sandbox

RESULT_BYTES = 8 << 20
"""A longer list of tests is none: a run of 50,000 names is below it."""

_RESTORE_S = 30.0
_PARSE_S = 90.0  # with the one above below `Bounds.judge_s`

_FOLDER = "/swepro"
_SCRIPT = f"{_FOLDER}/run_script.sh"
_STDOUT, _STDERR = f"{_FOLDER}/stdout.log", f"{_FOLDER}/stderr.log"

# The parser comes on stdin, into a folder of a name that the tests cannot have known: they ran before it was there.
_PARSE = f"""
folder=$(mktemp -d) && cd "$folder" && cat > parser.py || exit
"$(type -P python3 || type -P python)" parser.py {_STDOUT} {_STDERR} "$folder/result.json" > said 2>&1 < /dev/null
code=$?
for log in {_STDERR} {_STDOUT} said; do tail -c 1500 "$log" >&2; done
[[ -f result.json ]] && cat result.json
exit "$code"
"""


class Swepro:
    """Runs the script with the selected files, then the parser; resolved when every required test is among the passed.

    Both run as root, after the instance's activation, in the image's own environment.
    """

    @property
    def versions(self) -> Mapping[str, str]:
        """No library judges: the instance brings its parser."""
        return {}

    async def close(self) -> None:
        """Nothing was started."""

    async def prepare(self, instance: TaskInstance) -> Mapping[str, str]:
        """The script; the parser is brought once the tests have run."""
        assert isinstance(instance.grader, SweproGrader)  # the registry chose by kind
        if not instance.fail_to_pass and not instance.pass_to_pass:
            raise GraderBroken("the instance names no test that must pass, so everything and nothing would resolve it")
        return {_SCRIPT: instance.grader.run_script}

    async def run(self, instance: TaskInstance, sandbox: Sandbox, *, timeout_s: float) -> TestRun:
        """See `Grader.run`. What the parser does not give as a list of tests is no result."""
        grader = instance.grader
        assert isinstance(grader, SweproGrader)  # the registry chose by kind
        if refused := await _restore_tests(grader, instance, sandbox):
            return refused
        files = ",".join(grader.selected_test_files)
        tests = await sandbox.exec(
            [
                "bash",
                "-c",
                f"{instance.sandbox.activate or DEFAULT_ACTIVATION}\n"
                f"bash {_SCRIPT} {quote(files)} > {_STDOUT} 2> {_STDERR}",
            ],
            timeout_s=timeout_s,
            cwd=instance.sandbox.workdir,
            env={"HOME": "/root"},
            user="root",
            merge_streams=True,
            keep_bytes=1 << 14,
        )
        timings_s = {"tests": tests.duration_s}
        if tests.timed_out:
            cause = f"the tests ran past their limit of {timeout_s:g} s"
            return TestRun(VerdictName.TIMEOUT, cause, 0, 0, timings_s=timings_s, log_tail=await _log_tail(sandbox))
        parsed = await sandbox.exec(
            ["bash", "-c", _PARSE],
            timeout_s=_PARSE_S,
            stdin=grader.parser_script.encode(),
            cwd="/",
            env={"HOME": "/root"},
            user="root",
            keep_bytes=RESULT_BYTES,
        )
        passed = None if parsed.timed_out or parsed.stdout.dropped else passed_tests(parsed.stdout.text())
        f2p_failed, p2p_failed = (
            tuple(test for test in names if test not in (passed or ()))
            for names in (instance.fail_to_pass, instance.pass_to_pass)
        )
        f2p_count, p2p_count = (
            len(instance.fail_to_pass) - len(f2p_failed),
            len(instance.pass_to_pass) - len(p2p_failed),
        )
        if passed is None:
            name, cause = VerdictName.NO_RESULTS, _why_none(parsed)
        else:
            name = VerdictName.UNRESOLVED if f2p_failed or p2p_failed else VerdictName.RESOLVED
            f2p, p2p = len(instance.fail_to_pass), len(instance.pass_to_pass)
            cause = f"{f2p_count} of {f2p} F2P and {p2p_count} of {p2p} P2P tests pass"
        return TestRun(
            name,
            cause,
            f2p_count=f2p_count,
            p2p_count=p2p_count,
            f2p_failed=f2p_failed,
            p2p_failed=p2p_failed,
            exit_code=tests.exit_code,
            timings_s={**timings_s, "parse": parsed.duration_s},
            log_tail=parsed.stderr.text()[-4000:],
        )


async def _restore_tests(grader: SweproGrader, instance: TaskInstance, sandbox: Sandbox) -> TestRun | None:
    """Put the benchmark's tests over the patch; None when that is done, or nothing is to be done."""
    if not grader.restore_tests:
        return None
    done = await sandbox.exec(
        ["bash", "-c", grader.restore_tests],
        timeout_s=_RESTORE_S,
        cwd=instance.sandbox.workdir,
        env=GIT_ENV,
        user="root",
        merge_streams=True,
        keep_bytes=1 << 14,
    )
    if done.exit_code == 0:
        return None
    how = "did not end" if done.timed_out else f"failed with {done.exit_code}"
    cause = f"the tests could not be put over the patch: {grader.restore_tests[:200]!r} {how}"
    return TestRun(VerdictName.NO_RESULTS, cause, 0, 0, exit_code=done.exit_code, log_tail=done.stdout.text()[-4000:])


async def _log_tail(sandbox: Sandbox) -> str:
    """The end of what tests printed that were stopped."""
    argv = ["tail", "-c", "2000", _STDERR, _STDOUT]
    return (await sandbox.exec(argv, timeout_s=_RESTORE_S, cwd="/", user="root")).stdout.text()


def passed_tests(result: str) -> Set[str] | None:
    """Names with the status PASSED in what a parser wrote; None where that is no list of tests, or an empty one."""
    try:
        tests = json.loads(result)["tests"]
        statuses = [(test["name"], test["status"]) for test in tests]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return frozenset(str(name) for name, status in statuses if status == "PASSED") if statuses else None


def _why_none(parsed: ExecResult) -> str:
    """Why the parser gave no list of tests, where it gave none."""
    if parsed.timed_out:
        return f"the parser did not end within {_PARSE_S:g} s"
    if parsed.stdout.dropped:
        return f"the parser's result is longer than {RESULT_BYTES >> 20} MiB"
    if parsed.exit_code:
        return f"the parser failed with {parsed.exit_code} and gave no list of tests"
    return "the parser found no tests"


GRADER: type[Grader] = Swepro
