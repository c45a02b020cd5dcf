"""Who goes next, and that nobody waits for ever."""

import asyncio

from prometheus_client import REGISTRY

from sandbox_server.grading.base import GradeRequest
from sandbox_server.grading.durations import Durations
from sandbox_server.grading.line import AWAITED_LEAD_S, MOST_LEAD_S, Line, Turn

from .test_queue import instance, settle


def turn(sid: str, expected_s: float, since: float, run: str = "") -> Turn:
    return Turn(GradeRequest(instance(), b"x", sid, run=run), expected_s, {sid}, since=since)


async def order(line: Line, *turns: Turn) -> list[str]:
    """Sids in the order in which a line of one slot lets them go."""
    went: list[str] = []

    async def go(one: Turn) -> None:
        await line.enter(one)
        went.append(one.request.sid)
        await asyncio.sleep(0)
        line.leave(one)

    holder = turn("holder", 0, 0)
    await line.enter(holder)
    tasks = [asyncio.create_task(go(one)) for one in turns]
    await settle()
    assert not went
    expected = [one.request.sid for one in line.next()]
    line.leave(holder)
    await asyncio.gather(*tasks)
    assert went == expected
    return went


async def test_the_longest_first() -> None:
    """A short one before a long one leaves the long one running alone at the end."""
    assert await order(Line(1), turn("a", 1, 0), turn("b", 60, 0), turn("c", 5, 0)) == ["b", "c", "a"]


async def test_who_waited_long_enough_is_overtaken_no_more() -> None:
    """Long gradings that keep coming would starve a short one."""
    short = turn("short", 0, since=0)
    endless = 10 * MOST_LEAD_S
    later = [turn(f"long {at:g}", endless, since=at) for at in (MOST_LEAD_S - 1, MOST_LEAD_S + 1)]
    assert await order(Line(1), short, *later) == [f"long {MOST_LEAD_S - 1:g}", "short", f"long {MOST_LEAD_S + 1:g}"]


async def test_awaited_ones_go_sooner_but_not_always() -> None:
    """A trainer's request waits behind gradings that nobody has asked for; those must not starve either."""
    line = Line(1)
    with line.awaited("asked"), line.awaited("asked too"), line.awaited("asked"):
        turns = [turn("old", 0, 0), turn("asked too", 0, AWAITED_LEAD_S + 1), turn("new", 0, 9), turn("asked", 3, 9)]
        assert await order(line, *turns) == ["asked", "old", "asked too", "new"]
    assert await order(line, turn("new", 0, 8), turn("asked", 0, 9)) == ["new", "asked"], "nobody waits any more"


async def test_runs_take_turns() -> None:
    """One run's backlog of long gradings would hold up all gradings of another."""
    backlog = [turn(f"a{number}", 100, number, run="a") for number in range(4)]
    others = [turn("b0", 1, 50, run="b"), turn("b1", 60, 51, run="b"), turn("c0", 1, 60, run="c")]
    went = await order(Line(1), *backlog, *others)
    assert went == ["a0", "b1", "c0", "a1", "b0", "a2", "a3"], "within a run still the longest first"


async def test_a_run_with_fewer_slots_goes_first() -> None:
    """With several slots, turns alone would let the run with more of them keep more."""
    line = Line(3)
    held = [turn("b0", 0, 0, run="b"), turn("a0", 0, 0, run="a"), turn("b1", 0, 0, run="b")]
    late, long = turn("b2", 0, 9, run="b"), turn("a1", 99, 1, run="a")
    for one in held:
        await line.enter(one)
    waiting = {one.request.sid: asyncio.create_task(line.enter(one)) for one in (long, late)}
    await settle()
    line.leave(held[0])
    await settle()
    assert not waiting["b2"].done() and waiting["a1"].done(), "of equal ones who had its turn longest ago"
    line.leave(held[2])
    await settle()
    assert waiting["b2"].done()
    for one in (held[1], late, long):
        line.leave(one)
    assert not line.full and line.next() == []


async def test_a_caller_that_leaves_gives_its_slot_on() -> None:
    """Each cancelled request would cost a slot for good."""
    line = Line(1)
    holder = turn("holder", 0, 0)
    await line.enter(holder)
    waiting, next_one = (asyncio.create_task(line.enter(turn(sid, 0, at))) for at, sid in enumerate("ab"))
    await settle()
    assert line.full and REGISTRY.get_sample_value("sandbox_gradings_waiting") == 2
    waiting.cancel()
    await settle()
    line.leave(holder)  # granted to b, which is cancelled before it can run
    next_one.cancel()
    await asyncio.gather(waiting, next_one, return_exceptions=True)
    assert not line.full
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
