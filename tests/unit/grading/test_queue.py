"""Sharing, waiting and cancelling, with gradings whose duration the test controls."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, TaskInstance
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.grading.base import Claims, GradeRequest, SlotRelease
from sandbox_server.grading.queue import GradingQueue
from sandbox_server.verdicts import Verdict, VerdictName

_RESOLVED = Verdict(VerdictName.RESOLVED, mask=False, cause="")
_INFRA = Verdict(VerdictName.INFRA, mask=True, cause="")


def instance(name: str = "q__q-1", **fields: object) -> TaskInstance:
    given = {
        "instance_id": name,
        "repo": "q/q",
        "sandbox": SandboxSpec(images=("unused",)),
        "grader": ScriptGrader(command="true"),
    }
    return TaskInstance.model_validate(given | fields)


def request(patch: bytes | None = b"x", sid: str = "1") -> GradeRequest:
    return GradeRequest(instance(), patch, sid)


class HeldGrading:
    """Replaces `Grading`: each grading waits until the test releases it."""

    image = "sha256:1"

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = list(verdicts)
        self.begun: list[GradeRequest] = []
        self.most = self.now = 0
        self.gate, self.sealed, self.certified = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.sealed.set()
        self.closed = False
        self.expected: list[str] = []
        self.forgotten: list[str] = []

    async def facts(self, instance: TaskInstance) -> Mapping[str, object]:
        return {"image": self.image}

    def expect(self, instance: TaskInstance, sid: str) -> None:
        self.expected.append(sid)

    def forget(self, sid: str) -> None:
        self.forgotten.append(sid)

    async def make_image(self, instance: TaskInstance) -> None:
        await self.sealed.wait()

    async def grade(self, request: GradeRequest, release_slot: SlotRelease = nullcontext) -> Verdict:
        self.begun.append(request)
        if request.sid == "uncertified":
            async with release_slot():
                await self.certified.wait()
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.gate.wait()
        finally:
            self.now -= 1
        return self.verdicts.pop(0) if self.verdicts else _RESOLVED

    async def close(self) -> None:
        self.closed = True


class StoredVerdicts:
    """Verdicts by key, in memory; can be made to fail."""

    def __init__(self, *, broken: bool = False) -> None:
        self.kept: dict[str, Verdict] = {}
        self.broken = broken
        self.seconds: dict[str, float] = {}
        self.asked: list[str] = []

    async def verdict_by_key(self, key: str) -> Verdict | None:
        if self.broken:
            raise CatalogueUnavailable("no SQL")
        return self.kept.get(key)

    async def grading_seconds(self, instance_id: str) -> float | None:
        self.asked.append(instance_id)
        if self.broken:
            raise CatalogueUnavailable("no SQL")
        return self.seconds.get(instance_id)


def queue_of(
    grading: HeldGrading, stored: StoredVerdicts | None = None, concurrency: int = 2, claims: Claims | None = None
) -> GradingQueue:
    return GradingQueue(grading, stored or StoredVerdicts(), concurrency=concurrency, claims=claims)  # type: ignore[arg-type]  # a stand-in


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_work_in_flight_is_shared_and_a_leaver_takes_nothing() -> None:
    """One client that hangs up must not cost its whole group the reward."""
    grading = HeldGrading()
    queue = queue_of(grading)
    leaver, stayer = asyncio.create_task(queue.verdict(request())), asyncio.create_task(queue.verdict(request(sid="2")))
    await settle()
    leaver.cancel()
    await settle()
    grading.gate.set()
    assert (await stayer).resolved
    assert leaver.cancelled()
    assert len(grading.begun) == 1


async def test_each_waits_by_its_own_bound() -> None:
    """After `pending` the grading continues, and a later request finds it done."""
    grading = HeldGrading()
    queue = queue_of(grading)
    patient = asyncio.create_task(queue.verdict(request(), wait_s=30))
    pending = await queue.verdict(request(), wait_s=0.02)
    assert (pending.name, pending.mask, pending.f2p_total) == (VerdictName.PENDING, True, 1)
    assert not patient.done()
    grading.gate.set()
    assert (await patient).resolved
    assert (await queue.verdict(request(), wait_s=0.5)).resolved
    assert len(grading.begun) == 1


async def test_what_was_written_is_not_graded_again() -> None:
    """Hours later, or after a restart, the answer is the same and costs milliseconds."""
    grading, stored = HeldGrading(), StoredVerdicts()
    queue = queue_of(grading, stored)
    stored.kept[await queue.key(request())] = _RESOLVED
    assert await queue.verdict(request(), wait_s=0.5) == _RESOLVED
    assert not grading.begun


async def test_concurrency_is_bounded_and_seen() -> None:
    """Gradings beyond the slots slow each other's tests into timeouts."""
    grading = HeldGrading()
    queue = queue_of(grading, concurrency=2)
    asked = [asyncio.create_task(queue.verdict(request(bytes([number])))) for number in range(5)]
    await settle()
    assert REGISTRY.get_sample_value("sandbox_gradings_waiting") == 3
    grading.gate.set()
    await asyncio.gather(*asked)
    assert (grading.most, len(grading.begun)) == (2, 5)
    assert REGISTRY.get_sample_value("sandbox_gradings_waiting") == 0


async def test_what_is_made_of_an_instance_once_takes_no_slot() -> None:
    """Sealing a large image and certifying its tests would block every other grading of the node."""
    grading = HeldGrading()
    grading.gate.set()
    queue = queue_of(grading, concurrency=1)
    slow = asyncio.create_task(queue.verdict(request(b"slow", sid="uncertified")))
    await settle()
    assert (await queue.verdict(request(b"x"), wait_s=5)).resolved
    grading.sealed.clear()
    unsealed = asyncio.create_task(queue.verdict(request(b"y")))
    await settle()
    grading.certified.set()
    assert (await slow).resolved
    grading.sealed.set()
    assert (await unsealed).resolved
    assert grading.most == 1


async def test_who_is_cancelled_with_its_slot_released_leaves_no_slot_behind() -> None:
    """A slot freed twice would admit two gradings instead of one."""
    grading = HeldGrading()
    queue = queue_of(grading, concurrency=1)
    slow = asyncio.create_task(queue._grade_in_turn("k", request(sid="uncertified")))
    queue._sids["k"] = {"uncertified"}
    await settle()
    slow.cancel()
    await settle()
    asked = [asyncio.create_task(queue.verdict(request(bytes([number])))) for number in range(3)]
    await settle()
    grading.gate.set()
    await asyncio.gather(*asked)
    assert grading.most == 1


async def test_what_needs_no_run_needs_no_slot() -> None:
    """An empty patch would wait for half an hour of other instances' tests."""
    grading = HeldGrading()
    queue = queue_of(grading, concurrency=1)
    busy = asyncio.create_task(queue.verdict(request()))
    await settle()
    empty = [asyncio.create_task(queue.verdict(request(patch, sid="2"))) for patch in (None, b"\n")]
    await settle()
    assert len(grading.begun) == 3
    grading.gate.set()
    await asyncio.gather(busy, *empty)


async def test_the_newest_verdicts_are_kept_until_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict that is on its way to SQL is found by a second grading."""
    monkeypatch.setattr("sandbox_server.grading.queue._REMEMBERED", 1)
    grading = HeldGrading()
    grading.gate.set()
    queue = queue_of(grading)
    for patch in (b"old", b"new", b"new"):
        await queue.verdict(request(patch))
    assert [begun.patch for begun in grading.begun] == [b"old", b"new"]


async def test_a_verdict_without_a_run_says_nothing_about_durations() -> None:
    """Patches that do not apply end at once: the instance's next grading would pass for a short one."""
    grading = HeldGrading(replace(_RESOLVED, name=VerdictName.PATCH_FAILED, timings_s={"total": 0.1}))
    grading.verdicts.append(replace(_RESOLVED, timings_s={"tests": 30.0, "total": 40.0}))
    grading.gate.set()
    queue = queue_of(grading)
    await queue.verdict(request(b"refused"))
    assert await queue._durations.expected("q__q-1") == 0.0
    await queue.verdict(request(b"graded"))
    assert await queue._durations.expected("q__q-1") == 40.0


async def test_the_next_container_is_made_when_a_grading_ends() -> None:
    """It was refused while as many were ahead as may be, and nobody asks for it again: its grading waits for a boot."""
    grading = HeldGrading()
    queue = queue_of(grading, concurrency=1)
    asked = [asyncio.create_task(queue.verdict(request(name.encode(), sid=name))) for name in ("1", "2", "3")]
    await settle()
    assert grading.expected == ["2", "3"]
    grading.gate.set()
    await asyncio.gather(*asked)
    assert grading.expected[:3] == ["2", "3", "3"]


async def test_containers_made_ahead_are_asked_for_and_given_back() -> None:
    """A container made for a session whose patch shares another grading's verdict would stay until it expires."""
    grading, stored = HeldGrading(), StoredVerdicts()
    queue = queue_of(grading, stored, concurrency=1)
    key = await queue.key(request(b"known"))
    stored.kept[key] = _RESOLVED
    await queue.verdict(request(b"known", sid="known"))
    assert not grading.forgotten, "its removal would delay the write of the verdict"
    await queue.written(key)
    first = asyncio.create_task(queue.verdict(request(b"x", sid="first")))
    await settle()
    twin = asyncio.create_task(queue.verdict(request(b"x", sid="twin")))
    second = asyncio.create_task(queue.verdict(request(b"y", sid="second")))
    await settle()
    assert (grading.forgotten, grading.expected) == (["known", "twin"], ["second"])
    grading.gate.set()
    await asyncio.gather(first, twin, second)
    assert {"known", "first", "twin", "second"} == set(grading.forgotten)


async def test_the_longest_goes_first_by_what_was_stored() -> None:
    """If the longest grading of a batch started last, the trainer would wait for it alone."""
    grading, stored = HeldGrading(), StoredVerdicts()
    stored.seconds = {"q__q-2": 2.0, "q__q-3": 30.0, "q__q-4": 7.0}
    queue = queue_of(grading, stored, concurrency=1)
    asked = []
    for number in (1, 2, 3, 4):
        name = f"q__q-{number}"
        asked.append(asyncio.create_task(queue.verdict(GradeRequest(instance(name), b"x", name))))
        await settle()
    assert stored.asked == ["q__q-2", "q__q-3", "q__q-4"], "the first found a slot and need not be asked for"
    grading.gate.set()
    await asyncio.gather(*asked)
    assert [begun.sid for begun in grading.begun] == ["q__q-1", "q__q-3", "q__q-4", "q__q-2"]


async def test_an_order_is_not_worth_a_failure() -> None:
    """SQL that is down costs the order only."""
    grading = HeldGrading()
    queue = queue_of(grading, StoredVerdicts(broken=True), concurrency=1)
    asked = [asyncio.create_task(queue.verdict(request(bytes([number])))) for number in range(3)]
    await settle()
    grading.gate.set()
    assert all(verdict.resolved for verdict in await asyncio.gather(*asked))


async def test_masked_verdicts_are_graded_again() -> None:
    """A daemon that was down for a minute must not decide a patch for good."""
    grading = HeldGrading(_INFRA, _RESOLVED)
    grading.gate.set()
    queue = queue_of(grading)
    assert (await queue.verdict(request())).mask
    assert (await queue.verdict(request())).resolved
    assert (await queue.verdict(request())).resolved
    assert len(grading.begun) == 2


async def test_a_store_that_is_down_costs_sharing_only() -> None:
    """The verdict is still returned; whether it may be acknowledged is decided by whoever stores it."""
    grading = HeldGrading()
    grading.gate.set()
    assert (await queue_of(grading, StoredVerdicts(broken=True)).verdict(request())).resolved


async def test_close_stops_what_runs_and_what_waits() -> None:
    """A server that stops must not wait for half an hour of tests."""
    grading = HeldGrading()
    queue = queue_of(grading, concurrency=1)
    asked = [asyncio.create_task(queue.verdict(request(patch))) for patch in (b"x", b"y")]
    await settle()
    await queue.close()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert grading.closed
    assert REGISTRY.get_sample_value("sandbox_gradings_waiting") == 0


async def test_an_image_that_was_repaired_has_no_verdicts() -> None:
    """The verdicts of the broken image were kept forever under the same tag."""
    grading, stored = HeldGrading(), StoredVerdicts()
    grading.gate.set()
    queue = queue_of(grading, stored)
    stored.kept[await queue.key(request())] = await queue.verdict(request())
    await queue.verdict(request(sid="2"))
    assert len(grading.begun) == 1
    grading.image = "sha256:2"
    await queue.verdict(request(sid="3"))
    assert len(grading.begun) == 2


async def test_a_verdict_belongs_to_the_image_that_it_was_found_on() -> None:
    """The image may be brought, or replaced, between the request and the container."""
    grading = HeldGrading(replace(_RESOLVED, image_digest="sha256:2"), _RESOLVED)
    grading.image = ""
    grading.gate.set()
    queue = queue_of(grading)
    verdict = await queue.verdict(request())
    written = await queue.key(request(), verdict)
    grading.image = "sha256:2"
    assert await queue.key(request()) == written
    assert await queue.verdict(request(sid="2")) is verdict, "remembered under the image that it began with"
    grading.image = "sha256:1"
    assert await queue.key(request()) != written


async def test_a_container_made_ahead_is_given_back_if_the_look_for_a_verdict_breaks() -> None:
    """It would stay until it expires."""

    class Defective(StoredVerdicts):
        async def verdict_by_key(self, key: str) -> Verdict | None:
            raise ValueError("a defect")

    grading = HeldGrading()
    with pytest.raises(ValueError, match="a defect"):
        await queue_of(grading, Defective()).verdict(request(sid="1"))
    assert grading.forgotten == ["1"]
