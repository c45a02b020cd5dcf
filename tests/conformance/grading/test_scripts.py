"""Graders that run an instance's own script."""

import pytest

from sandbox_server.catalogue.instance import F2pScriptGrader, ScriptGrader
from sandbox_server.verdicts import VerdictName
from tests.conformance.grading.calc_bench import Bench
from tests.conformance.grading.calc_repository import FIXED

_CALC = "calc/__init__.py"


@pytest.mark.parametrize(
    ("command", "name", "exit_code"),
    [
        ("python3 -c 'from calc import add; assert add(2, 3) == 5'", VerdictName.RESOLVED, 0),
        ("test -f README.md && exit 7", VerdictName.UNRESOLVED, 7),
        ("sleep 60", VerdictName.TIMEOUT, None),
    ],
)
async def test_script_grader(
    bench: Bench,
    command: str,
    name: VerdictName,
    exit_code: int | None,
) -> None:
    """The exit code decides, and counts as the one F2P test."""
    instance = bench.instance(grader=ScriptGrader(command=command), eval_timeout_s=3)
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), instance)
    assert (verdict.name, verdict.exit_code, verdict.f2p_count) == (name, exit_code, int(exit_code == 0))
    assert (verdict.f2p_total, verdict.p2p_total, verdict.versions) == (1, 0, {})


async def test_script_grader_killed_for_memory(bench: Bench) -> None:
    """Exit code 137 is a kill, not a result; gold's own command needs too much memory, so it is masked."""
    command = "python3 -c 'b = bytearray(400 << 20); b[::4096] = bytes(len(b[::4096]))'"
    instance = bench.instance(grader=ScriptGrader(command=command), box={"memory_mb": 128})
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), instance)
    assert (verdict.name, verdict.mask, verdict.exit_code) == (VerdictName.NO_RESULTS, True, 137), verdict


@pytest.mark.parametrize(("fixed", "name"), [(True, VerdictName.RESOLVED), (False, VerdictName.UNRESOLVED)])
async def test_f2p_script_grader(
    bench: Bench,
    fixed: bool,
    name: VerdictName,
) -> None:
    """Scored 0 elsewhere in images that have python3 only; its files replace whatever the patch left there."""
    script = "import sys\n\nimport pytest\n\nsys.exit(pytest.main(['-q', 'hidden/test_f2p.py']))\n"
    hidden = "import sys\n\nsys.path.insert(0, '.')\nimport calc\n\n\ndef test_f2p():\n    assert calc.add(2, 3) == 5\n"
    instance = bench.instance(grader=F2pScriptGrader(script=script), files={"hidden/test_f2p.py": hidden})
    patch = bench.diff({"hidden/test_f2p.py": b"def test_f2p():\n    pass\n", **({_CALC: FIXED} if fixed else {})})
    assert (await bench.grade(patch, instance)).name is name
