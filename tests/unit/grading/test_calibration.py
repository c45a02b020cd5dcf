"""When a missing result is masked."""

import asyncio

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.errors import EngineUnavailable
from sandbox_server.grading.base import Baseline
from sandbox_server.grading.base import TestRun as Run  # pytest would collect a name that begins with Test
from sandbox_server.grading.calibration import Calibration
from sandbox_server.verdicts import VerdictName

_INSTANCE = TaskInstance(
    instance_id="c__c-1", repo="c/c", sandbox=SandboxSpec(images=("unused",)), grader=ScriptGrader(command="true")
)


def run(name: VerdictName) -> Run:
    return Run(name, "", f2p_count=0, p2p_count=0)


class Empty:
    """Stands in for gradings of the empty patch, and of gold."""

    def __init__(self, *gives: VerdictName | Exception) -> None:
        self.gives = list(gives)
        self.patches: list[bytes] = []

    @property
    def runs(self) -> int:
        return len(self.patches)

    async def __call__(self, instance: TaskInstance, patch: bytes) -> Run:
        self.patches.append(patch)
        await asyncio.sleep(0.01)
        given = self.gives.pop(0)
        if isinstance(given, Exception):
            raise given
        return run(given)


def calibration(stored: Baseline | None, empty: Empty, kept_s: float = 60.0) -> Calibration:
    async def source(instance: TaskInstance) -> Baseline | None:
        return stored

    return Calibration(source, empty, kept_s=kept_s)


@pytest.mark.parametrize(("gold_s", "mask"), [(None, False), (3.0, False), (29.9, False), (30.0, True), (31.0, True)])
async def test_a_timeout_is_masked_only_where_gold_runs_as_long(gold_s: float | None, mask: bool) -> None:
    """Otherwise a policy is trained on limits that nobody can meet, or gets a mask by looping forever."""
    known = calibration(Baseline(gold_tests_s=gold_s), Empty())
    assert (await known.mask(_INSTANCE, run(VerdictName.TIMEOUT), timeout_s=30.0))[0] is mask


@pytest.mark.parametrize(
    ("empty", "mask"),
    [(VerdictName.UNRESOLVED, False), (VerdictName.NO_RESULTS, True), (VerdictName.TIMEOUT, True)],
)
async def test_no_results_are_compared_with_the_unpatched_tree_once(empty: VerdictName, mask: bool) -> None:
    """A patch that silences the tests is to blame only if they speak without it; asked by many, tried once."""
    runs = Empty(empty)
    known = calibration(None, runs)
    asked = [known.mask(_INSTANCE, run(VerdictName.NO_RESULTS), timeout_s=30.0) for _ in range(5)]
    assert {answer[0] for answer in await asyncio.gather(*asked)} == {mask}
    assert runs.runs == 1


async def test_what_is_stored_is_not_tried_again() -> None:
    """`instances verify` has paid for that run already."""
    runs = Empty()
    known = calibration(Baseline(empty_gives_results=True), runs)
    assert (await known.mask(_INSTANCE, run(VerdictName.NO_RESULTS), timeout_s=30.0))[0] is False
    assert runs.runs == 0


async def test_what_cannot_be_found_out_is_masked_and_tried_again() -> None:
    """A fault of ours is never a reward, nor remembered."""
    known = calibration(None, Empty(EngineUnavailable("no daemon"), VerdictName.UNRESOLVED))
    masked, why = await known.mask(_INSTANCE, run(VerdictName.NO_RESULTS), timeout_s=30.0)
    assert masked and "no daemon" in why
    assert (await known.mask(_INSTANCE, run(VerdictName.NO_RESULTS), timeout_s=30.0))[0] is False


async def test_that_it_gives_no_results_is_not_believed_for_ever() -> None:
    """One timeout on a busy host masked every silenced run of the instance until the server's end."""
    runs = Empty(VerdictName.TIMEOUT, VerdictName.UNRESOLVED)
    known = calibration(None, runs, kept_s=0.05)
    masks = []
    for _ in range(3):
        masks.append((await known.mask(_INSTANCE, run(VerdictName.NO_RESULTS), timeout_s=30.0))[0])
        await asyncio.sleep(0.06)
    assert (masks, runs.runs) == ([True, False, False], 2)


@pytest.mark.parametrize(
    ("stored", "given", "mask", "patches"),
    [
        (None, (VerdictName.NO_RESULTS, VerdictName.RESOLVED), False, [b"", b"gold"]),
        (None, (VerdictName.NO_RESULTS, VerdictName.NO_RESULTS), True, [b"", b"gold"]),
        (None, (VerdictName.UNRESOLVED,), False, [b""]),
        (Baseline(gold_gives_results=True), (VerdictName.NO_RESULTS,), False, [b""]),
    ],
)
async def test_gold_decides_where_the_unpatched_tree_gives_no_results(
    stored: Baseline | None, given: tuple[VerdictName, ...], mask: bool, patches: list[bytes]
) -> None:
    """Tests that do not compile without the fix masked every rollout that had not even begun it."""
    runs, instance = Empty(*given), _INSTANCE.model_copy(update={"gold_patch": "gold"})
    known = calibration(stored, runs)
    assert (await known.mask(instance, run(VerdictName.NO_RESULTS), timeout_s=30.0))[0] is mask
    assert runs.patches == patches


async def test_a_timeout_is_masked_where_gold_has_one_now() -> None:
    """On a host with too much to do a right fix got 0.0, although gold would have got no further."""
    instance = _INSTANCE.model_copy(update={"gold_patch": "gold"})
    runs = Empty(VerdictName.TIMEOUT, VerdictName.RESOLVED, VerdictName.TIMEOUT)
    known = calibration(None, runs)
    assert [await masked(known, instance, timeout_s=30.0) for _ in range(2)] == [True, True]
    assert runs.patches == [b"gold"], "both ran beside gold's slow run"
    await asyncio.sleep(0.06)
    assert await masked(known, instance, timeout_s=0.05) is False, "it began after that run had ended"
    assert await masked(known, instance, timeout_s=0.05) is True, "gold's quick run ended before it"
    assert runs.patches == [b"gold"] * 3


async def masked(known: Calibration, instance: TaskInstance, *, timeout_s: float) -> bool:
    """Whether a timeout at this moment is masked."""
    return (await known.mask(instance, run(VerdictName.TIMEOUT), timeout_s=timeout_s))[0]


async def test_timeouts_at_one_time_share_a_run_of_gold() -> None:
    """On a host with too much to do each of them would add a run as long as its own."""
    instance = _INSTANCE.model_copy(update={"gold_patch": "gold"})
    runs = Empty(VerdictName.RESOLVED)
    known = calibration(None, runs)
    assert await asyncio.gather(*(masked(known, instance, timeout_s=30.0) for _ in range(5))) == [False] * 5
    assert runs.runs == 1
