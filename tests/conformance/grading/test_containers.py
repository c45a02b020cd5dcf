"""Grading containers created before their patch exists: used once, optional, never left over."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from sandbox_server.catalogue.instance import ScriptGrader
from sandbox_server.errors import EngineUnavailable
from sandbox_server.grading import containers as containers_module
from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.containers import KEPT_S, Bounds, Containers, PrestartLimits
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.sandbox.base import ContainerSpec, Limits, Sandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.verdicts import VerdictName
from tests.conformance.grading.calc_bench import Bench
from tests.conformance.grading.calc_repository import FIXED
from tests.conformance.grading.test_grading import NothingWritten

_CALC = "calc/__init__.py"
SID = "4711"  # of every grading of `Bench.grade`


class Counting:
    """The real runtime; records the containers it made, and fails as often as requested."""

    def __init__(self, runtime: DockerRuntime, failures: int = 0) -> None:
        self._runtime = runtime
        self.failures = failures
        self.created: list[str] = []
        self.specs: list[ContainerSpec] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._runtime, name)

    async def create(self, spec: ContainerSpec) -> Sandbox:
        if self.failures:
            self.failures -= 1
            raise EngineUnavailable("not now")
        sandbox = await self._runtime.create(spec)
        self.created.append(sandbox.container_id)
        self.specs.append(spec)
        return sandbox


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2400):
        if condition():
            return
        await asyncio.sleep(0.025)
    raise AssertionError("not within 60 s")


async def test_one_made_ahead_is_used_once(bench: Bench) -> None:
    """A grading in a used container would grade both patches."""
    runtime = Counting(bench.runtime)
    grading = bench.grading(runtime=runtime)
    grading.expect(bench.scripted(), SID)
    grading.expect(bench.scripted(), SID)
    await until(lambda: runtime.created)
    patch = bench.diff({_CALC: FIXED})
    first, second = [await bench.grade(patch, bench.scripted(), by=grading) for _ in range(2)]
    assert (first.name, second.name) == (VerdictName.RESOLVED, VerdictName.RESOLVED)
    assert len(runtime.created) == 2
    assert first.timings_s["create"] < second.timings_s["create"]
    assert await bench.left() == 0


async def test_it_is_waited_for(bench: Bench) -> None:
    """Creating a second container beside one that is nearly ready costs time and resources."""
    runtime = Counting(bench.runtime)
    grading = bench.grading(runtime=runtime)
    grading.expect(bench.scripted(), SID)
    await asyncio.sleep(0.02)
    assert (await bench.grade(bench.diff({_CALC: FIXED}), bench.scripted(), by=grading)).name is VerdictName.RESOLVED
    assert len(runtime.created) == 1


async def test_setup_commands_run_before_the_patch(bench: Bench) -> None:
    """An instance that needs them is graded the same, ahead or not, and what they made is the tests' to see."""
    instance = bench.instance(
        box={"setup_commands": ("git diff --quiet && echo clean > /set-up",)},
        grader=ScriptGrader(command="grep clean /set-up"),
    )
    grading = bench.grading()
    grading.expect(instance, SID)
    await asyncio.sleep(0.02)
    ahead = await bench.grade(bench.diff({_CALC: FIXED}), instance, by=grading)
    plain = await bench.grade(bench.diff({_CALC: FIXED}), instance, by=grading)
    assert (ahead.name, plain.name) == (VerdictName.RESOLVED, VerdictName.RESOLVED)
    assert ahead.timings_s["setup"] == 0.0 < plain.timings_s["setup"]


@pytest.mark.parametrize("moment", ["at once", "while it is made", "made"])
@pytest.mark.parametrize("why", ["forgotten", "empty", "tampered", "known", "twin", "another instance", "closed"])
async def test_one_that_is_not_needed_is_removed(bench: Bench, why: str, moment: str) -> None:
    """An unused container would stay until the reaper's deadline, hours later."""
    runtime = Counting(bench.runtime)
    grading = bench.grading(runtime=runtime, runner_files="refuse")
    queue = GradingQueue(grading, NothingWritten(), concurrency=2)
    fix = bench.diff({_CALC: FIXED})
    running = None
    if why == "known":
        await queue.verdict(GradeRequest(bench.scripted(), fix, "1"))
    elif why == "twin":
        running = asyncio.create_task(queue.verdict(GradeRequest(bench.scripted(), fix, "1")))
        await asyncio.sleep(0)
    before = len(runtime.created)
    grading.expect(bench.scripted(), SID)
    if moment == "while it is made":
        await asyncio.sleep(0.05)
    elif moment == "made":
        await until(lambda: len(runtime.created) > before + (why == "twin"))
    patches = {"empty": b"", "tampered": bench.diff({"conftest.py": b"x = 1\n"})}
    names = {"empty": "empty_patch", "tampered": "tampered", "another instance": "unresolved"}
    if why == "forgotten":
        queue.forget(SID)
    elif why == "closed":
        await grading._containers.close()
    else:
        other = {"eval_timeout_s": 59.0, "grader": ScriptGrader(command="false")} if why == "another instance" else {}
        request = GradeRequest(bench.scripted(**other), patches.get(why, fix), SID)
        verdict = await queue.verdict(request)
        await queue.written(await queue.key(request))
        assert verdict.name.value == names.get(why, "resolved")
    if running:
        await running
    assert await bench.left() == 0
    assert len(runtime.created) - before <= 1 + (why in ("twin", "another instance"))


async def test_one_that_died_meanwhile_costs_no_attempt(bench: Bench) -> None:
    """Otherwise a fault of the host could make the verdict infra."""
    runtime = Counting(bench.runtime)
    grading = bench.grading(runtime=runtime, attempts=1)
    grading.expect(bench.scripted(), SID)
    await until(lambda: runtime.created)
    await bench.runtime._engine.call(lambda api: api.kill(runtime.created[0]))
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), bench.scripted(), by=grading)
    assert (verdict.name, verdict.attempts, len(runtime.created)) == (VerdictName.RESOLVED, 1, 2)
    assert await bench.left() == 0


async def test_one_that_could_not_be_made_costs_no_attempt(bench: Bench) -> None:
    """As above, if the engine fails."""
    grading = bench.grading(runtime=Counting(bench.runtime, failures=1), attempts=1)
    grading.expect(bench.scripted(), SID)
    await asyncio.sleep(0.1)
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), bench.scripted(), by=grading)
    assert (verdict.name, verdict.attempts) == (VerdictName.RESOLVED, 1)


async def test_setup_that_fails_ahead_is_tried_again(bench: Bench) -> None:
    """Verdict and number of attempts are the same as without containers made ahead."""
    grading = bench.grading(attempts=2)
    instance = bench.instance(box={"setup_commands": ("echo no; exit 4",)})
    grading.expect(instance, SID)
    await asyncio.sleep(0.1)
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), instance, by=grading)
    assert (verdict.name, verdict.attempts, verdict.mask) == (VerdictName.INFRA, 2, True)
    assert "failed with 4: no" in verdict.cause
    assert await bench.left() == 0


async def test_they_are_bounded(bench: Bench) -> None:
    """A batch whose sessions end together would fill the host."""
    runtime = Counting(bench.runtime)
    grading = bench.grading(runtime=runtime, ahead=2)
    for sid in "12345":
        grading.expect(bench.scripted(), sid)
    assert grading._containers.waiting == 2
    await until(lambda: len(runtime.created) == 2)
    await grading._containers.close()
    assert await bench.present() == []
    grading.expect(bench.scripted(), "6")
    none = bench.grading(runtime=runtime, ahead=0)
    none.expect(bench.scripted(), SID)
    assert grading._containers.waiting == none._containers.waiting == 0


async def test_they_expire(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that call `finish` but are never ended would occupy all places."""
    monkeypatch.setattr(containers_module, "KEPT_S", 3.0)
    runtime = Counting(bench.runtime)
    grading = bench.grading(runtime=runtime)
    grading.expect(bench.scripted(), SID)
    await until(lambda: runtime.created)
    assert await bench.left() == 0
    assert grading._containers.waiting == 0


async def test_labels_and_weight(bench: Bench) -> None:
    """The reaper would remove waiting containers, or tests would use the CPU time of live sessions."""
    runtime = Counting(bench.runtime)
    bounds = Bounds(create_s=60.0)
    boxes = Containers(runtime, limits=Limits(memory_mb=256), cpu_shares=64, bounds=bounds, ahead=PrestartLimits(1))  # type: ignore[arg-type]  # by __getattr__
    boxes.expect(bench.scripted(), SID)
    await until(lambda: runtime.created)
    (spec,) = runtime.specs
    lasts_s = (spec.deadline - datetime.now(UTC)).total_seconds()
    assert KEPT_S + bounds.of_attempt(bench.scripted()) - 10 < lasts_s <= KEPT_S + bounds.of_attempt(bench.scripted())
    (info,) = [info for info in await bench.runtime.list() if info.container_id == runtime.created[0]]
    assert (info.sid, info.held, info.running) == (SID, True, True)
    found = await bench.runtime._engine.call(lambda api: api.inspect_container(runtime.created[0]))
    assert found["HostConfig"]["CpuShares"] == 64
    await boxes.close()
    assert await bench.present() == []
