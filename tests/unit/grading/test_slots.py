"""The order of gradings, and that each one runs after a bounded wait."""

import asyncio

from prometheus_client import REGISTRY

from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.durations import Durations
from sandbox_server.grading.slots import AWAITED_LEAD_S, MOST_LEAD_S, SlotQueue, Ticket

from .test_queue import instance, settle


def ticket(sid: str, expected_s: float, since: float, run: str = "") -> Ticket:
    return Ticket(GradeRequest(instance(), b"x", sid, run=run), expected_s, {sid}, since=since)


async def order(slots: SlotQueue, *tickets: Ticket) -> list[str]:
    """Sids in the order in which a queue with one slot lets them go."""
    went: list[str] = []

    async def go(one: Ticket) -> None:
        await slots.enter(one)
        went.append(one.request.sid)
        await asyncio.sleep(0)
        slots.leave(one)

    holder = ticket("holder", 0, 0)
    await slots.enter(holder)
    tasks = [asyncio.create_task(go(one)) for one in tickets]
    await settle()
    assert not went
    expected = [one.request.sid for one in slots.next()]
    slots.leave(holder)
    await asyncio.gather(*tasks)
    assert went == expected
    return went


async def test_the_longest_first() -> None:
    """A short one before a long one leaves the long one running alone at the end."""
    assert await order(SlotQueue(1), ticket("a", 1, 0), ticket("b", 60, 0), ticket("c", 5, 0)) == ["b", "c", "a"]


async def test_who_waited_long_enough_is_overtaken_no_more() -> None:
    """Long gradings that keep coming would starve a short one."""
    short = ticket("short", 0, since=0)
    endless = 10 * MOST_LEAD_S
    later = [ticket(f"long {at:g}", endless, since=at) for at in (MOST_LEAD_S - 1, MOST_LEAD_S + 1)]
    assert await order(SlotQueue(1), short, *later) == [
        f"long {MOST_LEAD_S - 1:g}",
        "short",
        f"long {MOST_LEAD_S + 1:g}",
    ]


async def test_whoever_leaves_the_queue_leaves_no_crowd() -> None:
    """The runs of certificates would wait for a grading that was cancelled, as long as they may."""
    slots = SlotQueue(1)
    holder = ticket("holder", 0, 0)
    await slots.enter(holder)
    waiting = asyncio.create_task(slots.enter(ticket("a", 0, 0)))
    await settle()
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.wait_for(slots.wait_until_uncrowded(), 5)
    slots.leave(holder)


async def test_it_is_awaited_until_the_last_request_goes() -> None:
    """The first of two clients that ask for a reward gives up, and the other one waits behind all the rest."""
    slots = SlotQueue(1)
    with slots.awaited("asked"):
        with slots.awaited("asked"):
            pass
        assert await order(slots, ticket("other", 1, 0), ticket("asked", 0, 0)) == ["asked", "other"]
    assert await order(slots, ticket("other", 1, 0), ticket("asked", 0, 0)) == ["other", "asked"]


async def test_awaited_ones_go_sooner_but_not_always() -> None:
    """A trainer's request waits behind gradings without a waiting request; or those starve."""
    slots = SlotQueue(1)
    with slots.awaited("asked"), slots.awaited("asked too"), slots.awaited("asked"):
        tickets = [
            ticket("old", 0, 0),
            ticket("asked too", 0, AWAITED_LEAD_S + 1),
            ticket("new", 0, 9),
            ticket("asked", 3, 9),
        ]
        assert await order(slots, *tickets) == ["asked", "old", "asked too", "new"]
    assert await order(slots, ticket("new", 0, 8), ticket("asked", 0, 9)) == ["new", "asked"], "nobody waits any more"


async def test_runs_take_tickets() -> None:
    """One run's backlog of long gradings would hold up all gradings of another."""
    backlog = [ticket(f"a{number}", 100, number, run="a") for number in range(4)]
    others = [ticket("b0", 1, 50, run="b"), ticket("b1", 60, 51, run="b"), ticket("c0", 1, 60, run="c")]
    went = await order(SlotQueue(1), *backlog, *others)
    assert went == ["a0", "b1", "c0", "a1", "b0", "a2", "a3"], "within a run still the longest first"


async def test_a_run_with_fewer_slots_goes_first() -> None:
    """With several slots, tickets alone would let the run with more of them keep more."""
    slots = SlotQueue(3)
    held = [ticket("b0", 0, 0, run="b"), ticket("a0", 0, 0, run="a"), ticket("b1", 0, 0, run="b")]
    late, long = ticket("b2", 0, 9, run="b"), ticket("a1", 99, 1, run="a")
    for one in held:
        await slots.enter(one)
    waiting = {one.request.sid: asyncio.create_task(slots.enter(one)) for one in (long, late)}
    await settle()
    slots.leave(held[0])
    await settle()
    assert not waiting["b2"].done() and waiting["a1"].done(), "among equals the run that got its last slot longest ago"
    slots.leave(held[2])
    await settle()
    assert waiting["b2"].done()
    for one in (held[1], late, long):
        slots.leave(one)
    assert not slots.full and slots.next() == []


async def test_a_caller_that_leaves_gives_its_slot_on() -> None:
    """Each cancelled request would cost a slot for good."""
    slots = SlotQueue(1)
    holder = ticket("holder", 0, 0)
    await slots.enter(holder)
    waiting, next_one = (asyncio.create_task(slots.enter(ticket(sid, 0, at))) for at, sid in enumerate("ab"))
    await settle()
    assert slots.full and REGISTRY.get_sample_value("sandbox_gradings_waiting") == 2
    waiting.cancel()
    await settle()
    slots.leave(holder)  # granted to b, which is cancelled before it can run
    next_one.cancel()
    await asyncio.gather(waiting, next_one, return_exceptions=True)
    assert not slots.full
    assert REGISTRY.get_sample_value("sandbox_gradings_waiting") == 0
    assert REGISTRY.get_sample_value("sandbox_gradings_running") == 0


async def test_durations_are_learned() -> None:
    """What was stored counts until this process knows better; the unknown is taken for average."""

    async def stored(instance_id: str) -> float | None:
        return {"a": 10.0}.get(instance_id)

    durations = Durations(stored)
    assert await durations.expected("b") == 0.0
    assert await durations.expected("a") == 10.0
    durations.learn("a", 20.0)
    assert await durations.expected("a") == 15.0
    durations.learn("c", 5.0)
    assert await durations.expected("c") == 5.0
    assert await durations.expected("b") == 10.0
