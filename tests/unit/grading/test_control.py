"""Which runs clear the host when a grading breaks off; real ones are in tests/conformance/grading/test_blame.py."""

import time
from typing import cast

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable, InfrastructureError, SandboxLost, SandboxPaused
from sandbox_server.grading.base import TestRun as Run  # pytest would collect a name that begins with Test
from sandbox_server.grading.control import Control, GradingInterrupted, attribute_failures, is_suspect
from sandbox_server.sandbox.base import Limits
from sandbox_server.sandbox.inspector import ContainerDetails, ContainerInspector, CurrentLimits
from sandbox_server.verdicts import VerdictName

_INSTANCE = TaskInstance(
    instance_id="c__c-1",
    repo="c/c",
    sandbox=SandboxSpec(images=("unused",)),
    grader=ScriptGrader(command="true"),
    gold_patch="gold",
)


@pytest.mark.parametrize(
    ("empty", "gold", "works", "patches"),
    [
        (VerdictName.UNRESOLVED, VerdictName.RESOLVED, True, [b""]),
        (VerdictName.NO_RESULTS, VerdictName.RESOLVED, True, [b"", b"gold"]),
        (VerdictName.NO_RESULTS, VerdictName.NO_RESULTS, False, [b"", b"gold"]),
    ],
)
async def test_gold_clears_the_host_where_the_unpatched_tree_gives_no_results(
    empty: VerdictName, gold: VerdictName, works: bool, patches: list[bytes]
) -> None:
    """Where tests do not begin without a fix, every patch that ended its container was masked."""
    asked: list[bytes] = []

    async def run(instance: TaskInstance, patch: bytes) -> Run:
        asked.append(patch)
        return Run(gold if patch else empty, "", f2p_count=0, p2p_count=0)

    assert await Control(run, kept_s=60).works(_INSTANCE, image="i", since=0.0) is works
    assert asked == patches


class SeenFrom:
    """Replaces `ContainerInspector`: what the engine says about one container."""

    def __init__(self, answer: ContainerDetails | Exception) -> None:
        self._answer = answer

    async def inspect(self, container_id: str) -> ContainerDetails:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def _seen(
    *, running: bool = False, oom_killed: bool = False, exit_code: int = 0, limits: CurrentLimits | None = None
) -> ContainerDetails:
    return ContainerDetails("i", "@0", running, oom_killed, exit_code, limits)


_LOST = SandboxLost("gone")


async def _broke_off(answer: ContainerDetails | Exception, error: Exception = _LOST, patch: bytes = b"x") -> Exception:
    with pytest.raises(Exception) as raised:
        async with attribute_failures(
            cast(ContainerInspector, SeenFrom(answer)), "c", image="i", patch=patch, limits=Limits()
        ):
            raise error
    return raised.value


@pytest.mark.parametrize(
    ("answer", "error", "outer"),
    [
        (_seen(exit_code=137), _LOST, True),
        (_seen(exit_code=143), _LOST, True),
        (_seen(exit_code=137, oom_killed=True), _LOST, False),
        (_seen(exit_code=1), _LOST, False),
        (_seen(running=True), SandboxPaused("paused"), True),
        (_seen(running=True), ValueError("a defect"), False),
        (SandboxLost("no such container"), _LOST, True),
    ],
)
async def test_whose_fault_it_looks_like(answer: ContainerDetails | Exception, error: Exception, outer: bool) -> None:
    """A patch that fills its memory is taken for a restart of the engine, or a restart for the patch."""
    broken = await _broke_off(answer, error)
    assert isinstance(broken, GradingInterrupted) and broken.outer is outer and broken.error is error


async def test_without_a_patch_or_an_engine_nobody_is_blamed() -> None:
    """The control's own failure, or the engine's, counts against the next patch."""
    assert await _broke_off(_seen(exit_code=1), patch=b"") is _LOST
    assert await _broke_off(EngineUnavailable("away")) is _LOST


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (CurrentLimits(6, 1.0, 512), "memory_mb 6 in place of 512"),
        (CurrentLimits(512, 0.01, 512), "cpus 0.01 in place of 1"),
        (CurrentLimits(512, 1.0, 8), "pids 8 in place of 512"),
        (CurrentLimits(512, 1.0, 512), ""),
        (CurrentLimits(2048, 4.0, 4096), ""),  # more than it was given fails no test
        (CurrentLimits(511.99, 0.9999999, 512), ""),  # rounded
        (CurrentLimits(0, 0.0, 0), ""),  # a kernel without control groups: nothing is bounded
        (None, ""),
    ],
)
async def test_limits_that_somebody_has_lowered_are_the_hosts_fault(now: CurrentLimits | None, why: str) -> None:
    """After `docker update --memory 6m` the patch was blamed for its container's death: 0.0, not masked."""
    limits = Limits(memory_mb=512, cpus=1.0, pids=512)
    with pytest.raises(InfrastructureError) as raised:
        async with attribute_failures(
            cast(ContainerInspector, SeenFrom(_seen(exit_code=137, oom_killed=True, limits=now))),
            "c",
            image="i",
            patch=b"x",
            limits=limits,
        ):
            raise _LOST
    assert isinstance(raised.value, GradingInterrupted) == (not why) and why in raised.value.detail


def _broken(*, outer: bool) -> GradingInterrupted:
    return GradingInterrupted(_LOST, image="i", outer=outer)


def test_one_more_attempt_is_made_only_if_it_can_decide() -> None:
    """A failure that every attempt shared is a mask for lack of a second one; or attempts never end."""
    own, outer = _broken(outer=False), _broken(outer=True)
    asked = [([own], 1), ([own, own], 2), ([outer], 1), ([own], 2), ([], 0)]
    assert [is_suspect(interruptions, attempts) for interruptions, attempts in asked] == [
        True,
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(("outer", "runs"), [(False, 1), (True, 2)])
async def test_a_restart_of_the_engine_is_cleared_by_a_later_control_alone(outer: bool, runs: int) -> None:
    """The control of a minute ago says nothing about kills since then: the patch would be blamed for them."""
    asked = []

    async def run(instance: TaskInstance, patch: bytes) -> Run:
        asked.append(patch)
        return Run(VerdictName.RESOLVED, "", f2p_count=0, p2p_count=0)

    control = Control(run, kept_s=60)
    assert await control.works(_INSTANCE, image="i", since=0.0)
    assert await control.blames(_INSTANCE, [_broken(outer=outer)] * 3, began=time.monotonic())
    assert len(asked) == runs


async def test_a_control_is_of_one_row_on_one_image() -> None:
    """A good run on the old image, or of the row as it was, blames patches for a broken new one."""
    asked = []

    async def run(instance: TaskInstance, patch: bytes) -> Run:
        asked.append(instance.row_sha256)
        return Run(VerdictName.RESOLVED, "", f2p_count=0, p2p_count=0)

    control = Control(run, kept_s=60)
    for row, image in (("1", "i"), ("1", "i"), ("2", "i"), ("1", "j")):
        assert await control.works(_INSTANCE.model_copy(update={"row_sha256": row}), image=image, since=0.0)
    assert asked == ["1", "2", "1"]
