"""One patch that several servers want to grade: one of them does, and the others wait for its verdict."""

import asyncio

from sandbox_server.errors import StateUnavailable

from .test_queue import _INFRA, _RESOLVED, HeldGrading, StoredVerdicts, queue_of, request, settle


class Register:
    """Claims of several servers, in memory; can be made to fail."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.broken = False

    async def claim(self, name: str) -> str | None:
        if self.broken:
            raise StateUnavailable("no Redis")
        if name in self.taken:
            return None
        self.taken.add(name)
        return name

    async def unclaim(self, claim: str) -> None:
        self.taken.remove(claim)


async def test_another_server_grades_the_same() -> None:
    """Two nodes would run the same tests over the same patch at once."""
    first, second, stored, claims = HeldGrading(), HeldGrading(), StoredVerdicts(), Register()
    one, two = queue_of(first, stored, claims=claims), queue_of(second, stored, claims=claims)
    key = await one.key(request())
    running, waiting = asyncio.create_task(one.verdict(request())), asyncio.create_task(two.verdict(request(sid="2")))
    await settle()
    first.gate.set()
    stored.kept[key] = await running
    await one.written(key)
    assert (await asyncio.wait_for(waiting, 5)).resolved
    await two.written(key)
    assert not second.begun and not claims.taken


async def test_another_server_has_just_graded_the_same() -> None:
    """A verdict that is written between the look for one and the claim is overlooked, and the tests run again."""
    grading, stored, claims = HeldGrading(), StoredVerdicts(), Register()
    queue = queue_of(grading, stored, claims=claims)
    key = await queue.key(request())
    claim = claims.claim

    async def late(name: str) -> str | None:
        stored.kept[key] = _RESOLVED
        return await claim(name)

    claims.claim = late  # type: ignore[method-assign]
    grading.gate.set()
    assert await queue.verdict(request(), wait_s=5) is _RESOLVED
    assert not grading.begun
    await queue.written(key)
    assert not claims.taken


async def test_another_server_found_nothing() -> None:
    """If the other server died or its verdict was a fault, a waiting one takes over."""
    first, second, claims = HeldGrading(_INFRA), HeldGrading(), Register()
    one, two = queue_of(first, claims=claims), queue_of(second, claims=claims)
    key = await one.key(request())
    running, waiting = asyncio.create_task(one.verdict(request())), asyncio.create_task(two.verdict(request(sid="2")))
    first.gate.set()
    second.gate.set()
    assert (await running).mask
    await one.written(key)
    assert (await asyncio.wait_for(waiting, 5)).resolved
    assert len(second.begun) == 1


async def test_without_redis_it_is_graded_all_the_same() -> None:
    grading, claims = HeldGrading(), Register()
    claims.broken = True
    grading.gate.set()
    assert (await queue_of(grading, claims=claims).verdict(request(), wait_s=5)).resolved
