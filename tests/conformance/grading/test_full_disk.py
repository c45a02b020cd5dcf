"""A full disk of the engine is no verdict on a patch."""

from typing import Any

import pytest

from sandbox_server.verdicts import VerdictName
from tests.conformance.grading.calc_bench import Bench
from tests.conformance.grading.calc_repository import FIXED

_CALC = "calc/__init__.py"
_FULL = "printf '#!/bin/sh\\necho 0 4096 0 0\\n' > /usr/local/bin/stat && chmod +x /usr/local/bin/stat"


@pytest.mark.parametrize(("full", "applies"), [("ln -s /dev/full /tmp/patch.diff", True), (_FULL, False)])
async def test_a_full_disk_is_no_fault_of_the_patch(bench: Bench, full: str, applies: bool) -> None:
    """A patch that could not be written was blamed for it, and one that git had no room to apply did not apply."""
    patch = bench.diff({_CALC: FIXED})
    if not applies:
        patch = patch.replace(b"-    return numbers[0]", b"-    return never_there[0]")
    verdict = await bench.grade(patch, bench.instance(box={"setup_commands": (full,)}))
    assert (verdict.name, verdict.mask, verdict.attempts) == (VerdictName.INFRA, True, 3), verdict
    assert verdict.cause.startswith("sandbox_disk_full: "), verdict.cause
    assert await bench.left() == 0


async def test_what_fails_on_a_full_disk_is_not_believed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours fill the engine's disk: tests that cannot write fail, and a right fix was worth 0.0, unmasked."""
    grading = bench.grading(attempts=2)
    grader, faults = grading._graders["swebench"], grading._containers._faults
    run = grader.run

    async def fills(*arguments: Any, **options: Any) -> Any:
        told = await run(*arguments, **options)
        faults.tell("disk", "the engine's disk is full")
        return told

    monkeypatch.setattr(grader, "run", fills)
    verdict = await bench.grade(bench.diff({"README.md": b"other\n"}), by=grading)
    assert (verdict.name, verdict.mask) == (VerdictName.INFRA, True), verdict
    assert "the engine's disk is full" in verdict.cause
    faults.tell("disk", "")
    assert (await bench.grade(bench.diff({_CALC: FIXED}), by=grading)).name is VerdictName.RESOLVED
