"""SWE-bench Pro's way of grading: a run script, a parser, and every required test among those that passed."""

import asyncio

import pytest

from sandbox_server.catalogue.instance import SweproGrader, TaskInstance
from sandbox_server.verdicts import VerdictName
from tests.conformance.grading.calc_bench import ENDLESS, PYTEST, Bench
from tests.conformance.grading.calc_repository import FIXED
from tests.conformance.grading.test_grading import Saboteur

_CALC = "calc/__init__.py"

_RUN = f"""#!/bin/bash
IFS=, read -r -a files <<< "$1"
echo "$# argument: $1" >&2
{PYTEST} "${{files[@]}}"
"""
_PARSER = """
import json
import re
import sys

out, err, result = sys.argv[1:]
assert open(err).read().startswith("1 argument: ")
found = re.findall(r"^(PASSED|FAILED|SKIPPED) (\\S+)", open(out).read(), re.MULTILINE)
with open(result, "w") as stream:
    json.dump({"tests": [{"name": name, "status": status} for status, name in found]}, stream)
"""


def pro(bench: Bench, *, box: dict[str, object] | None = None, **grader: object) -> TaskInstance:
    """The tests lie in a later commit, as in Pro's images, and are checked out before the agent comes and after."""
    later = f"""
git checkout -q -b later
git apply - <<'EOF'
{bench.test_patch}
EOF
git add -A
git -c user.name=Ada -c user.email=ada@example.org commit -q -m later
git checkout -q -
git checkout later -- tests"""
    fields = {
        "run_script": _RUN,
        "parser_script": _PARSER,
        "selected_test_files": ("tests/test_calc.py", "tests/test_new.py"),
        "restore_tests": "git checkout later -- tests",
    }
    grading = SweproGrader.model_validate(fields | grader)
    return bench.instance(box={"setup_commands": (later,), **(box or {})}, grader=grading)


@pytest.mark.parametrize(
    ("code", "name", "f2p"),
    [
        (FIXED, VerdictName.RESOLVED, 2),
        (FIXED.replace(b"sum(numbers)", b"numbers[0] + numbers[1]"), VerdictName.UNRESOLVED, 1),
    ],
)
async def test_every_required_test_has_to_pass(bench: Bench, code: bytes, name: VerdictName, f2p: int) -> None:
    """All of both lists, or nothing; the counts say how near it came."""
    verdict = await bench.grade(bench.diff({_CALC: code}), pro(bench))
    assert (verdict.name, verdict.mask, verdict.f2p_count, verdict.f2p_total) == (name, False, f2p, 2), verdict
    assert (verdict.p2p_count, verdict.p2p_total, verdict.versions) == (1, 1, {})
    assert verdict.f2p_failed == (() if f2p == 2 else ("tests/test_new.py::test_many",))
    assert "1 argument: tests/test_calc.py,tests/test_new.py\n" in verdict.log_tail
    assert {"tests", "parse"} <= verdict.timings_s.keys()


async def test_skipped_and_missing_tests_are_not_passed(bench: Bench) -> None:
    """A patch could make every test skip itself, or select none."""
    skips = b"import pytest\n\n\ndef add(*numbers):\n    pytest.skip('no')\n\n\ndef mul(a, b):\n    return a * b\n"
    verdict = await bench.grade(bench.diff({_CALC: skips}), pro(bench))
    assert (verdict.name, verdict.f2p_count, verdict.p2p_count) == (VerdictName.UNRESOLVED, 0, 1), verdict
    one_file = await bench.grade(bench.diff({_CALC: FIXED}), pro(bench, selected_test_files=("tests/test_new.py",)))
    assert (one_file.name, one_file.f2p_count, one_file.p2p_count) == (VerdictName.UNRESOLVED, 1, 0)


async def test_the_tests_are_put_over_the_patch(bench: Bench) -> None:
    """A policy that guesses where the tests lie is graded by them as they are."""
    forged = {"tests/test_new.py": b"def test_many():\n    pass\n"}
    verdict = await bench.grade(bench.diff(forged), pro(bench))
    assert (verdict.name, verdict.mask, verdict.f2p_count) == (VerdictName.UNRESOLVED, False, 0), verdict
    both = await bench.grade(bench.diff({_CALC: FIXED, **forged}), pro(bench))
    assert both.name is VerdictName.RESOLVED, both


async def test_what_the_tests_leave_for_the_parser_is_not_read(bench: Bench) -> None:
    """Product code runs as root: it can own every Python of its container, and so did a parser that ran there."""
    names = ("tests/test_calc.py::test_add", "tests/test_new.py::test_many", "tests/test_calc.py::test_mul")
    tests = [{"name": name, "status": "PASSED"} for name in names]
    forging = "import json, sys\nif 'parser.py' in sys.orig_argv[1]:\n    out = open(sys.orig_argv[-1], 'w')\n"
    forging += f"    json.dump({{'tests': {tests!r}}}, out)\n    out.close()\n    sys.exit(0)\n"
    owning = "import site\nfolder = site.getsitepackages()[0]\n"
    for name, text in (("owned.pth", "import owned\n"), ("owned.py", forging)):
        owning += f"with open(folder + '/{name}', 'w') as file:\n    file.write({text!r})\n"
    wrong = "\n\ndef add(*numbers):\n    return 0\n\n\ndef mul(a, b):\n    return a * b\n"
    verdict = await bench.grade(bench.diff({_CALC: (owning + wrong).encode()}), pro(bench))
    assert (verdict.name, verdict.f2p_count, verdict.p2p_count) == (VerdictName.UNRESOLVED, 0, 1), verdict


@pytest.mark.parametrize(
    ("parser", "cause"),
    [
        ("raise SystemExit(3)", "the parser failed with 3"),
        ("import sys\nopen(sys.argv[3], 'w').write('{\"tests\"')", "the parser found no tests"),
    ],
)
async def test_a_parser_that_breaks_gives_no_results(bench: Bench, parser: str, cause: str) -> None:
    """It says nothing about the policy: the unpatched tree gives none either."""
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), pro(bench, parser_script=parser))
    assert (verdict.name, verdict.mask, verdict.f2p_count) == (VerdictName.NO_RESULTS, True, 0), verdict
    assert cause in verdict.cause and "nor does the unpatched tree" in verdict.cause


async def test_a_run_that_the_patch_silences(bench: Bench) -> None:
    """No list of tests, where the unpatched tree gives one: the patch is to blame."""
    verdict = await bench.grade(bench.diff({_CALC: b"import os\n\nos._exit(0)\n" + FIXED}), pro(bench))
    assert (verdict.name, verdict.mask) == (VerdictName.NO_RESULTS, False), verdict


async def test_tests_that_cannot_be_had(bench: Bench) -> None:
    """An image without the later commit cannot be graded; that is no fault of the policy."""
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), pro(bench, restore_tests="git checkout absent -- tests"))
    assert (verdict.name, verdict.mask) == (VerdictName.INFRA, True), verdict
    assert "the tests cannot be checked out: git checkout absent -- tests: " in verdict.cause


_NO_FOLDER = b"""diff --git a/tests b/tests
new file mode 100644
--- /dev/null
+++ b/tests
@@ -0,0 +1 @@
+no folder
"""


async def test_what_the_patch_left_where_the_tests_go(bench: Bench) -> None:
    """A folder of its own at a test's path is replaced; what cannot be is the policy's doing."""
    folder = await bench.grade(bench.diff({_CALC: FIXED, "tests/test_new.py/x.py": b"\n"}), pro(bench))
    assert folder.name is VerdictName.RESOLVED, folder
    file = await bench.grade(bench.diff({_CALC: FIXED, "tests/test_calc.py": None}) + _NO_FOLDER, pro(bench))
    assert (file.name, file.mask) == (VerdictName.NO_RESULTS, False), file
    assert "the tests cannot be laid over the patch" in file.cause


async def test_the_deadline_kills(bench: Bench) -> None:
    """slime drops such a sample; here it is the policy's doing, and named."""
    # gold itself may take as long on a busy host
    instance = pro(bench).model_copy(update={"eval_timeout_s": 3.0, "gold_patch": ""})
    verdict = await bench.grade(bench.diff({_CALC: ENDLESS}), instance)
    assert (verdict.name, verdict.mask, verdict.attempts) == (VerdictName.TIMEOUT, False, 1), verdict
    assert "1 argument: " in verdict.log_tail
    assert await bench.left() == 0


async def test_what_only_we_can_cause_is_infra(bench: Bench) -> None:
    """No reward for an instance that anything would resolve, nor where the container dies under its tests."""
    none = pro(bench).model_copy(update={"fail_to_pass": (), "pass_to_pass": ()})
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), none, by=bench.grading(attempts=1))
    assert (verdict.name, verdict.mask) == (VerdictName.INFRA, True)
    assert "no test that must pass" in verdict.cause
    saboteur = Saboteur(bench.runtime, times=1)
    slow = b"import time\n\ntime.sleep(2)\n\n\n" + FIXED
    by = bench.grading(runtime=saboteur, attempts=1)
    verdict = await bench.grade(bench.diff({_CALC: slow}), pro(bench), by=by)
    await asyncio.gather(*saboteur.killers)
    assert (verdict.name, verdict.mask) == (VerdictName.INFRA, True), verdict
    assert verdict.cause.startswith("sandbox_lost: ")


async def test_names_reach_the_script_as_they_are(bench: Bench) -> None:
    """One argument, whatever the names hold: nothing of a row is read by a shell on the way."""
    names = ("tests/$(touch /x) it's.py", 'a"b.py', "ü.py")
    instance = pro(bench, selected_test_files=names, run_script='echo "$# argument: $1" >&2\n')
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), instance)
    assert f"1 argument: {','.join(names)}\n" in verdict.log_tail
    assert await bench.left() == 0


async def test_tests_that_never_begin_without_a_fix(bench: Bench) -> None:
    """Where they do not compile, whoever left the needed name out got a mask, as the unpatched tree is silent too."""
    needs_it = _RUN.replace("IFS=", "grep -q 'return sum' calc/__init__.py || exit 2\nIFS=", 1)
    verdict = await bench.grade(bench.diff({"README.md": b"nothing\n"}), pro(bench, run_script=needs_it))
    assert (verdict.name, verdict.mask) == (VerdictName.NO_RESULTS, False), verdict
    assert "gold gives some" in verdict.cause
