"""Gradings whose container dies, whose engine fails, or that are cancelled: never a verdict on the patch."""

import asyncio

import pytest

from sandbox_server.errors import EngineUnavailable
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.verdicts import VerdictName
from tests.conformance.grading.calc_bench import Bench, Saboteur
from tests.conformance.grading.calc_repository import FIXED
from tests.waiting import eventually

_CALC = "calc/__init__.py"


class Busy:
    """The real runtime, but the first removal fails, as on an engine that times out waiting for a kill."""

    def __init__(self, runtime: DockerRuntime) -> None:
        self._runtime = runtime
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._runtime, name)

    async def remove(self, container_id: str) -> None:
        self.asked += 1
        if self.asked == 1:
            raise EngineUnavailable("tried to kill container, but did not receive an exit event")
        await self._runtime.remove(container_id)


async def test_a_removal_that_fails_is_tried_again(bench: Bench) -> None:
    """Until the reaper runs, if there is one, the container would keep its memory."""
    busy = Busy(bench.runtime)
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), bench.scripted(), by=bench.grading(runtime=busy))
    assert verdict.name is VerdictName.RESOLVED, verdict
    assert await bench.left() == 0
    assert busy.asked == 2


_SLOW = b"import time\n\ntime.sleep(5)\n\n\n" + FIXED


async def test_a_container_that_dies_is_replaced(bench: Bench) -> None:
    """A fault of the host costs time, not a reward."""
    saboteur = Saboteur(bench.runtime, times=1)
    verdict = await bench.grade(bench.diff({_CALC: _SLOW}), by=bench.grading(runtime=saboteur))
    await asyncio.gather(*saboteur.killers)
    assert (verdict.name, verdict.attempts, len(saboteur.created)) == (VerdictName.RESOLVED, 2, 2)
    assert await bench.left() == 0


async def test_attempts_are_bounded(bench: Bench) -> None:
    """After the last attempt the verdict is infra, masked, with its cause, not an unmasked 0.0."""
    saboteur = Saboteur(bench.runtime, times=9)
    verdict = await bench.grade(bench.diff({_CALC: _SLOW}), by=bench.grading(runtime=saboteur, attempts=2))
    await asyncio.gather(*saboteur.killers)
    assert (verdict.name, verdict.mask, verdict.attempts) == (VerdictName.INFRA, True, 2)
    assert verdict.cause.startswith("sandbox_lost: ")
    assert (verdict.f2p_total, len(saboteur.created)) == (2, 2)
    assert await bench.left() == 0


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"box": {"images": ("sandbox-test/absent:none",)}}, "image_unavailable"),
        ({"box": {"setup_commands": ("echo no; exit 4",)}}, "failed with 4: no"),
        ({"grader": None, "ungradable_because": "no such family"}, "no such family"),
    ],
)
async def test_what_only_we_can_cause_is_infra(
    bench: Bench,
    fields: dict[str, object],
    cause: str,
) -> None:
    """An instance that cannot be graded must not train anyone."""
    verdict = await bench.grade(bench.diff({_CALC: FIXED}), bench.instance(**fields), by=bench.grading(attempts=2))
    assert (verdict.name, verdict.mask) == (VerdictName.INFRA, True)
    assert cause in verdict.cause


async def test_cancelling_removes_the_container(bench: Bench) -> None:
    """A server that stops during a grading leaves no container for the reaper."""
    grading = asyncio.create_task(bench.grade(bench.diff({_CALC: _SLOW})))
    await eventually(bench.present)
    grading.cancel()
    await asyncio.gather(grading, return_exceptions=True)
    assert grading.cancelled()
    assert await bench.left() == 0
