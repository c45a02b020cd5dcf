"""Who is to blame when a grading breaks off: the patch, where the unpatched tree gets through on the same engine."""

import asyncio
from typing import Any

import pytest

from sandbox_server.catalogue.instance import ScriptGrader
from sandbox_server.sandbox.base import ContainerSpec, Sandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.verdicts import VerdictName
from tests.conformance.grading.calc_bench import Bench
from tests.conformance.grading.calc_repository import FIXED
from tests.conformance.grading.test_grading import Saboteur

_CALC = "calc/__init__.py"
_SLOW = b"import time\n\ntime.sleep(1)\n\n\n" + FIXED
_INIT_DIES = b"""
with open("/proc/1/oom_score_adj", "w") as score:
    score.write("1000")
eaten = [b"x" * 10_000_000 for _ in range(100)]
"""


async def test_a_patch_that_has_its_container_killed_is_scored(bench: Bench) -> None:
    """A mask at will: the OOM killer takes the first process, and the container with it."""
    grading = bench.grading()
    instance = bench.instance(box={"memory_mb": 128})
    verdict = await bench.grade(bench.diff({_CALC: _INIT_DIES + FIXED}), instance, by=grading)
    assert (verdict.name, verdict.mask) == (VerdictName.NO_RESULTS, False), verdict
    # the engine tells either the tests' kill or the container's end first
    assert "the control does not" in verdict.cause or "out of the container's memory" in verdict.cause
    assert await bench.left() == 0


_SIGNALS = b"""
import os
import signal

for number in signal.valid_signals():
    os.kill(1, number)
"""


async def test_no_signal_from_inside_reaches_the_first_process(bench: Bench) -> None:
    """A trap of its own for TERM made bash take that one and others: the container ended at will."""
    verdict = await bench.grade(bench.diff({_CALC: _SIGNALS + FIXED}))
    assert (verdict.name, verdict.attempts) == (VerdictName.RESOLVED, 1), verdict
    assert await bench.left() == 0


@pytest.mark.parametrize(("kills", "name"), [(2, VerdictName.RESOLVED), (3, VerdictName.NO_RESULTS)])
async def test_kills_from_outside_must_come_oftener(bench: Bench, kills: int, name: VerdictName) -> None:
    """An engine that restarts twice is no fault of a patch; what ends three in a row, and no control, is."""
    saboteur = Saboteur(bench.runtime, times=kills)
    verdict = await bench.grade(bench.diff({_CALC: _SLOW}), by=bench.grading(runtime=saboteur, attempts=3))
    await asyncio.gather(*saboteur.killers)
    assert (verdict.name, verdict.mask, verdict.attempts) == (name, False, 3), verdict
    assert await bench.left() == 0


class Squeezer:
    """The real runtime, but somebody takes the memory of the first `times` grading containers as their tests begin."""

    def __init__(self, runtime: DockerRuntime, times: int) -> None:
        self._runtime = runtime
        self._times = times
        self.hands: list[asyncio.Task[None]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._runtime, name)

    async def create(self, spec: ContainerSpec) -> Sandbox:
        sandbox = await self._runtime.create(spec)
        if len(self.hands) < self._times:
            self.hands.append(asyncio.create_task(self._squeeze(sandbox)))
        return sandbox

    async def _squeeze(self, sandbox: Sandbox) -> None:
        begun = "until [ -e /tmp/begun ]; do sleep 0.05; done"
        await sandbox.exec(["bash", "-c", begun], timeout_s=60)
        id_ = sandbox.container_id
        await self._runtime._engine.call(lambda api: api.update_container(id_, mem_limit="6m", memswap_limit="6m"))
        await sandbox.exec(["touch", "/tmp/squeezed"], timeout_s=60)


@pytest.mark.parametrize(("times", "name", "mask"), [(1, VerdictName.RESOLVED, False), (9, VerdictName.INFRA, True)])
async def test_memory_that_somebody_takes_is_no_fault_of_a_patch(
    bench: Bench, times: int, name: VerdictName, mask: bool
) -> None:
    """`docker update --memory 6m` on a grading container gave 0.0, unmasked: its tests were killed."""
    waits = "touch /tmp/begun; for n in $(seq 200); do [ -e /tmp/squeezed ] && break; sleep 0.05; done"
    instance = bench.scripted(grader=ScriptGrader(command=f"{waits}; python3 -c 'b\"x\" * (30 << 20)'"))
    squeezer = Squeezer(bench.runtime, times)
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), instance, by=bench.grading(runtime=squeezer, attempts=3))
    await asyncio.gather(*squeezer.hands, return_exceptions=True)
    assert (verdict.name, verdict.mask) == (name, mask), verdict
    assert not mask or "memory_mb 6 in place of 512" in verdict.cause
    assert await bench.left() == 0


async def test_a_defect_that_only_a_patch_brings_out_is_no_mask(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch that finds a bug of ours in the judging must not buy a mask with it."""
    grading = bench.grading()
    grader = grading._graders["swebench"]
    run = grader.run

    async def fails(*arguments: Any, **options: Any) -> Any:
        told = await run(*arguments, **options)
        if "broken" in told.log_tail:
            raise UnicodeError("a defect")
        return told

    monkeypatch.setattr(grader, "run", fails)
    verdict = await bench.grade(bench.diff({_CALC: b"raise ValueError('broken')\n"}), by=grading)
    assert (verdict.name, verdict.mask) == (VerdictName.NO_RESULTS, False), verdict
    assert "a defect" in verdict.cause
    assert await bench.left() == 0


MISREAD = {
    "rename old": (
        "diff --git a/calc/x b/calc/y\nsimilarity index 100%\nrename old calc/__init__.py\nrename new conftest.py\n"
    ),
    "one quoted name": (
        'diff --git "a/conftest.py" b/conftest.py\nnew file mode 100644\n'
        "index 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"
    ),
    "no prefix at first": (
        "--- /dev/null\n+++ new\n@@ -0,0 +1 @@\n+x\n"
        "--- /dev/null\n+++ tests/conftest.py\n@@ -0,0 +1 @@\n+import pytest\n"
    ),
}


@pytest.mark.parametrize("name", MISREAD)
async def test_a_patch_that_git_reads_otherwise_is_refused(bench: Bench, name: str) -> None:
    """A conftest.py that the guard does not see is graded with the rest: any test passes."""
    verdict = await bench.grade(bench.diff({_CALC: FIXED}) + MISREAD[name].encode())
    assert verdict.mask is False
    seen = "conftest.py" in " ".join(verdict.stripped)
    assert seen or (verdict.name is VerdictName.PATCH_FAILED and "git reads other files" in verdict.cause), verdict
    assert await bench.left() == 0
