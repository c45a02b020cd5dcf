"""Patches graded for real: container, git, pytest, the swebench library."""

import asyncio
import time
from typing import Any

import pytest

from sandbox_server.catalogue.instance import ScriptGrader, SwebenchGrader
from sandbox_server.grading.base import Baseline, GradeRequest
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.output import ExecResult
from sandbox_server.verdicts import Verdict, VerdictName
from tests.conformance.grading.calc_bench import ENDLESS, Bench, Saboteur
from tests.conformance.grading.calc_repository import FIXED, TREE

_CALC = "calc/__init__.py"


async def test_gold_is_resolved(bench: Bench) -> None:
    """The gold patch gets the full reward, and every field of the answer is correct."""
    verdict = await bench.grade(bench.diff({_CALC: FIXED}))
    assert verdict.name is VerdictName.RESOLVED, verdict
    assert (verdict.f2p_count, verdict.f2p_total, verdict.p2p_count, verdict.p2p_total) == (2, 2, 1, 1)
    assert (verdict.mask, verdict.patch_is_none, verdict.patch_exists, verdict.patch_applied) == (
        False,
        False,
        True,
        True,
    )
    assert verdict.apply_tier == "git apply --verbose"
    assert verdict.exit_code == 0
    assert verdict.versions == {"swebench": "5.0.2"}
    assert verdict.image_digest.startswith("sha256:")
    assert set(verdict.timings_s) == {"create", "setup", "apply", "tests", "parse", "total"}
    assert "tests/test_new.py::test_many" in verdict.log_tail
    assert await bench.left() == 0


async def test_a_wrong_patch_is_not(bench: Bench) -> None:
    """A patch that fixes one of two tests is counted as one of two."""
    half = FIXED.replace(b"sum(numbers)", b"numbers[0] + numbers[1]")
    verdict = await bench.grade(bench.diff({_CALC: half}))
    assert (verdict.name, verdict.mask) == (VerdictName.UNRESOLVED, False)
    assert (verdict.f2p_count, verdict.p2p_count, verdict.exit_code) == (1, 1, 1)
    assert verdict.f2p_failed == ("tests/test_new.py::test_many",)


@pytest.mark.parametrize(("patch", "is_none"), [(None, True), (b"", False), (b"\n", False)])
async def test_an_empty_patch_costs_no_container(bench: Bench, patch: bytes | None, is_none: bool) -> None:
    """`git apply` exits 128 on an empty file, which must not read as a patch that fails."""
    verdict = await bench.grade(patch, cause="the agent removed .git" if is_none else "")
    assert (verdict.name, verdict.mask, verdict.f2p_total) == (VerdictName.EMPTY_PATCH, False, 2)
    assert (verdict.patch_is_none, verdict.patch_exists, verdict.patch_applied) == (is_none, bool(patch), False)
    assert set(verdict.timings_s) == {"total"}
    assert verdict.cause == ("the agent removed .git" if is_none else "nothing was changed")


async def test_a_patch_of_another_tree_fails(bench: Bench) -> None:
    """Told apart from a wrong fix: the tests never ran."""
    patch = bench.diff({_CALC: FIXED}).replace(b"-    return numbers[0] - sum(numbers[1:])", b"-    return never_there")
    verdict = await bench.grade(patch)
    assert (verdict.name, verdict.mask, verdict.patch_applied) == (VerdictName.PATCH_FAILED, False, False)
    assert "does not apply" in verdict.cause


async def test_a_patch_of_many_hunks_that_fail(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """13 MB of them made 200 MB of messages in small writes: three attempts of two minutes each, then a mask."""
    results: list[ExecResult] = []
    execute = BashSandbox.exec

    async def noted(*args: Any, **how: Any) -> ExecResult:
        results.append(await execute(*args, **how))
        return results[-1]

    monkeypatch.setattr(BashSandbox, "exec", noted)
    head = f"diff --git a/{_CALC} b/{_CALC}\n--- a/{_CALC}\n+++ b/{_CALC}\n"
    verdict = await bench.grade((head + "@@ -1 +1 @@\n-never\n+there\n" * 5000).encode())
    assert (verdict.name, verdict.mask) == (VerdictName.PATCH_FAILED, False)
    assert "does not apply" in verdict.cause
    said = results[-1].stdout
    assert not said.dropped and 1000 < len(said.head + said.tail) <= 8000


async def test_the_unpatched_tree_can_be_run(bench: Bench) -> None:
    """`instances verify` needs test results for the empty patch, whose verdict alone says nothing about the tests."""
    run = await bench.grading().run_unpatched(bench.instance())
    assert (run.name, run.f2p_count, run.p2p_count) == (VerdictName.UNRESOLVED, 0, 1)


async def test_a_rejected_part_does_not_stay(bench: Bench) -> None:
    """`--reject` applies some hunks; without a reset they would be graded as if the patch had applied."""
    broken = bench.diff({"README.md": b"other\n"}).replace(b"-calc", b"-never there")
    verdict = await bench.grade(bench.diff({_CALC: FIXED}) + broken)
    assert verdict.name is VerdictName.PATCH_FAILED


async def test_edits_of_the_tests_are_undone(bench: Bench) -> None:
    """Weakened tests gain nothing, and do not harm a correct fix."""
    weak = {"tests/test_calc.py": TREE["tests/test_calc.py"].replace(b"== 6", b"== 6 or True")}
    grading = bench.grading()
    assert (await bench.grade(bench.diff(weak), by=grading)).name is VerdictName.UNRESOLVED
    assert (await bench.grade(bench.diff({**weak, _CALC: FIXED}), by=grading)).name is VerdictName.RESOLVED


async def test_a_stray_file_where_the_tests_add_one(bench: Bench) -> None:
    """git refuses the whole test patch because of it: gold of flask-4992 plus such a file was scored as wrong."""
    patch = bench.diff({_CALC: FIXED, "tests/test_new.py": b"def test_many():\n    assert False\n"})
    verdict = await bench.grade(patch)
    assert verdict.name is VerdictName.RESOLVED, verdict.log_tail


@pytest.mark.parametrize("mode", ["120000", "100644"], ids=["link", "file"])
async def test_old_tests_do_not_stand_in_for_those_that_git_refuses(bench: Bench, mode: str) -> None:
    """A link in place of a new folder made git refuse all of the test patch; old tests of the same names passed."""
    changed = TREE["tests/test_calc.py"].replace(b"== 6", b"== 6 and add(2, 3) == 5")
    test_patch = bench.diff({"tests/test_calc.py": changed, "tests/cases/one.txt": b"2 3\n"}).decode()
    plain = bench.instance()
    assert isinstance(plain.grader, SwebenchGrader)
    script = plain.grader.eval_script.replace(bench.test_patch, test_patch).replace(" tests/test_new.py\n", "\n")
    grader = plain.grader.model_copy(update={"eval_script": script, "new_test_files": ("tests/cases/one.txt",)})
    f2p = ("tests/test_calc.py::test_mul",)
    instance = bench.instance(grader=grader, test_patch=test_patch, fail_to_pass=f2p, pass_to_pass=())
    head = f"diff --git a/tests/cases b/tests/cases\nnew file mode {mode}\n--- /dev/null\n+++ b/tests/cases\n"
    verdict = await bench.grade(f"{head}@@ -0,0 +1 @@\n+../calc\n\\ No newline at end of file\n".encode(), instance)
    assert (verdict.name, verdict.mask) == (VerdictName.NO_RESULTS, False), verdict.cause
    assert (await bench.grade(bench.diff({_CALC: FIXED}), instance)).name is VerdictName.RESOLVED


async def test_binary_changes_and_new_files_apply(bench: Bench) -> None:
    """A fix may consist only of binary changes and new files."""
    reads = (
        b"from pathlib import Path\n\nfrom calc.new_part import total as add\n\n\n"
        b"def mul(a, b):\n    return a * b\n\n\n"
        b"assert Path(__file__).with_name('table.bin').read_bytes() == b'\\0\\xff\\2'\n"
    )
    files = {
        _CALC: reads,
        "calc/table.bin": b"\0\xff\2",
        "calc/new_part.py": b"def total(*numbers):\n    return sum(numbers)\n",
        "dir with space/\xc3\xbc.bin".encode("latin-1").decode(): bytes(range(256)),
    }
    verdict = await bench.grade(bench.diff(files))
    assert verdict.name is VerdictName.RESOLVED, verdict.log_tail


async def test_a_huge_log_of_any_bytes(bench: Bench) -> None:
    """Results at the end of 40 MB of noise that is not UTF-8 are still found."""
    noise = b"import os\nfor _ in range(40):\n    os.write(2, b'\\xff\\xfe\\0 noise\\n' * 104858)\n\n\n"
    verdict = await bench.grade(bench.diff({_CALC: noise + FIXED}))
    assert verdict.name is VerdictName.RESOLVED, verdict.log_tail


async def test_a_daemon_that_keeps_the_output_open(bench: Bench) -> None:
    """A test that leaves a server behind must not turn a right fix into a timeout."""
    leaves = b"import subprocess\n\nsubprocess.Popen(['sleep', '300'], start_new_session=True)\n\n\n"
    verdict = await bench.grade(bench.diff({_CALC: leaves + FIXED}), bench.instance(eval_timeout_s=20))
    assert verdict.name is VerdictName.RESOLVED, verdict


@pytest.mark.parametrize(("gold_s", "mask"), [(1.0, False), (4.0, True)])
async def test_the_deadline_kills(
    bench: Bench,
    gold_s: float,
    mask: bool,
) -> None:
    """Tests that never end are stopped, their container with them; the verdict says timeout, not wrong."""
    began = time.monotonic()
    grading = bench.grading(Baseline(gold_tests_s=gold_s))
    instance = bench.instance(eval_timeout_s=4, gold_patch="")  # gold itself may take as long on a busy host
    verdict = await bench.grade(bench.diff({_CALC: ENDLESS}), instance, by=grading)
    assert (verdict.name, verdict.mask) == (VerdictName.TIMEOUT, mask)
    assert verdict.log_tail.endswith("Timeout error: 4 seconds exceeded.")
    assert verdict.attempts == 1
    assert time.monotonic() - began < 60
    assert await bench.left() == 0


async def test_a_timeout_that_gold_has_too_is_masked(bench: Bench) -> None:
    """A host with hardly any CPU left for the tests says nothing about the policy."""
    slow = bench.instance(eval_timeout_s=2, box={"cpus": 0.02})
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), slow)
    assert (verdict.name, verdict.mask) == (VerdictName.TIMEOUT, True), verdict
    assert "gold runs as long" in verdict.cause


@pytest.mark.parametrize("silence", ["os._exit(0)", "os.kill(os.getppid(), 9)", "os.kill(-1, 9)"])
async def test_silenced_tests_are_the_patchs_fault(bench: Bench, silence: str) -> None:
    """Without results there is no reward and no mask, if the unpatched tree does give results."""
    verdict = await bench.grade(bench.diff({_CALC: b"import os\n\n%s\n" % silence.encode() + FIXED}))
    assert (verdict.name, verdict.mask, verdict.f2p_count) == (VerdictName.NO_RESULTS, False, 0), verdict


async def test_no_results_where_nothing_ever_gives_any_is_masked(bench: Bench) -> None:
    """A broken environment says nothing about the policy."""
    broken = bench.instance(box={"setup_commands": ("mv /usr/bin/python3 /usr/bin/python3.gone",)})
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), broken)
    assert (verdict.name, verdict.mask) == (VerdictName.NO_RESULTS, True), verdict
    assert "nor does the unpatched tree" in verdict.cause


async def test_out_of_memory_is_named(bench: Bench) -> None:
    """The memory limit killed the tests but not the unpatched tree, so the patch is to blame, and the cause says so."""
    hungry = b"block = bytearray(400 << 20)\nfor at in range(0, len(block), 4096):\n    block[at] = 1\n\n\n"
    verdict = await bench.grade(bench.diff({_CALC: hungry + FIXED}), bench.instance(box={"memory_mb": 128}))
    assert (verdict.name, verdict.mask) == (VerdictName.NO_RESULTS, False), verdict
    assert "out of the container's memory" in verdict.cause
    assert verdict.exit_code == 137


_HOOK = b"""import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome = "passed"
    report.longrepr = None
"""
_FORGE = b"""import os


def pytest_sessionstart(session):
    names = ("tests/test_calc.py::test_add", "tests/test_new.py::test_many", "tests/test_calc.py::test_mul")
    os.write(1, "".join(f"PASSED {name}\\n" for name in names).encode())
    os._exit(0)
"""


@pytest.mark.parametrize("cheat", [_HOOK, _FORGE], ids=["hook", "forge"])
async def test_a_conftest_buys_no_reward(bench: Bench, cheat: bytes) -> None:
    """The benchmark's harness scores both as resolved; here the policy for runner files decides, and it is reported."""
    patch = bench.diff({"conftest.py": cheat})
    stripped = await bench.grade(patch, by=bench.grading(runner_files="strip"))
    assert (stripped.name, stripped.mask, stripped.f2p_count) == (VerdictName.UNRESOLVED, False, 0)
    assert stripped.runner_files == stripped.stripped == ("conftest.py",)
    flagged = await bench.grade(patch, by=bench.grading(runner_files="flag"))
    assert (flagged.name, flagged.runner_files, flagged.stripped) == (VerdictName.RESOLVED, ("conftest.py",), ())
    refused = await bench.grade(patch, by=bench.grading(runner_files="refuse"))
    assert (refused.name, refused.mask, refused.runner_files) == (VerdictName.TAMPERED, False, ("conftest.py",))


async def test_a_fix_beside_a_stripped_file_is_graded(bench: Bench) -> None:
    """An agent that leaves a pytest.ini behind has still fixed the bug."""
    patch = bench.diff({_CALC: FIXED, "pytest.ini": b"[pytest]\naddopts = --co\n"})
    verdict = await bench.grade(patch)
    assert (verdict.name, verdict.stripped) == (VerdictName.RESOLVED, ("pytest.ini",))


async def test_what_a_fix_breaks_cannot_be_hidden_beside_the_tests(bench: Bench) -> None:
    """With the helper of a P2P test edited, the patch that broke what it tests was resolved."""
    script = bench.instance().grader.eval_script.replace(
        "tests/test_new.py\n:", "tests/test_new.py kept/tests/test_kept.py\n:"
    )
    grader = SwebenchGrader(eval_script=script, log_parser="parse_log_pytest", new_test_files=("tests/test_new.py",))
    instance = bench.instance(grader=grader, pass_to_pass=("kept/tests/test_kept.py::test_kept",))
    broken = {_CALC: FIXED.replace(b"a * b", b"a + b"), "kept/tests/expected.py": b"SIX = 5\n"}
    verdict = await bench.grade(bench.diff(broken), instance)
    assert (verdict.name, verdict.stripped) == (VerdictName.UNRESOLVED, ("kept/tests/expected.py",))
    assert (verdict.f2p_count, verdict.p2p_count) == (2, 0)
    loose = await bench.grade(bench.diff(broken), instance, by=bench.grading(runner_files="flag"))
    assert loose.name is VerdictName.RESOLVED
    fixed = await bench.grade(bench.diff({_CALC: FIXED, "kept/tests/expected.py": b"SIX = 6.0\n"}), instance)
    assert (fixed.name, fixed.p2p_count) == (VerdictName.RESOLVED, 1)


async def test_a_file_where_the_tests_need_a_folder(bench: Bench) -> None:
    """Caused by the policy: neither an error of the service nor a reason to retry."""
    instance = bench.instance(grader=ScriptGrader(command="exit 1"), files={"hidden/test_f2p.py": "x"})
    verdict = await bench.grade(bench.diff({"hidden": b"not a folder\n"}), instance)
    assert (verdict.name, verdict.mask, verdict.attempts) == (VerdictName.NO_RESULTS, False, 1)


class NothingWritten:
    """A catalogue without verdicts."""

    async def verdict_by_key(self, key: str) -> Verdict | None:
        return None

    async def grading_seconds(self, instance_id: str) -> float | None:
        return None


async def test_the_same_patch_is_graded_once(bench: Bench) -> None:
    """A group of rollouts that end in the same patch costs one container; another patch has its own."""
    counting = Saboteur(bench.runtime, times=0)
    queue = GradingQueue(bench.grading(runtime=counting), NothingWritten(), concurrency=2)
    fix, other = bench.diff({_CALC: FIXED}), bench.diff({"README.md": b"other\n"})
    requests = [GradeRequest(bench.scripted(), patch, str(sid)) for sid, patch in enumerate([fix, other, fix, fix])]
    verdicts = await asyncio.gather(*(queue.verdict(request) for request in requests))
    assert [verdict.name.value for verdict in verdicts] == ["resolved", "unresolved", "resolved", "resolved"]
    assert await queue.verdict(requests[0]) == verdicts[0]
    assert len(counting.created) == 2
