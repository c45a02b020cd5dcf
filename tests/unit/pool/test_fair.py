"""Runs that want the same few things: each gets its share, none starves another, nothing is lost."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_server.pool.fair import FairLine, LineFull, Place


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


class Starts:
    """Tasks that take one each and keep it until told."""

    def __init__(self, line: FairLine) -> None:
        self.line = line
        self.got: list[str] = []
        self.holding: list[str] = []
        self.waiting: list[tuple[Place, asyncio.Task[None]]] = []

    def begin(self, run: str) -> tuple[Place, asyncio.Task[None]]:
        place = Place(run)
        one = (place, asyncio.create_task(self._one(place)))
        self.waiting.append(one)
        return one

    async def _one(self, place: Place) -> None:
        await self.line.acquire(place)
        self.got.append(place.run)
        self.holding.append(place.run)

    def end(self, run: str) -> None:
        self.holding.remove(run)
        self.line.release(run)

    async def close(self) -> None:
        for _, task in self.waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in self.waiting), return_exceptions=True)


async def test_a_thousand_starts_of_one_run_do_not_starve_another() -> None:
    """First come, first served would let a second trainer wait for all starts of the first."""
    starts = Starts(FairLine(4))
    for _ in range(1000):
        starts.begin("greedy")
    await settle()
    for _ in range(10):
        starts.begin("small")
    await settle()
    assert starts.got == ["greedy"] * 4
    for _ in range(2):
        starts.end("greedy")
        await settle()
    assert starts.got[4:] == ["small", "small"], "what frees goes to who holds less"
    for _ in range(8):
        starts.end("small")
        await settle()
    assert Counter(starts.holding) == {"greedy": 2, "small": 2}
    await starts.close()


async def test_one_slot_goes_round() -> None:
    """With a single slot all runs hold nothing when it frees: the oldest place alone would let a backlog through."""
    starts = Starts(FairLine(1))
    for run in "aaaabbc":
        starts.begin(run)
    await settle()
    for _ in range(6):
        starts.end(starts.holding[0])
        await settle()
    assert "".join(starts.got) == "abcabaa"
    await starts.close()


async def test_a_full_line_is_shared_too() -> None:
    """A run that fills the line would keep all others out of it with 503."""
    line = FairLine(1, most_waiting=4)
    starts = Starts(line)
    for _ in range(5):
        starts.begin("greedy")
    await settle()
    place, refused = starts.begin("greedy")
    await settle()
    with pytest.raises(LineFull):
        refused.result()
    assert place.position == 5
    small = [starts.begin("small") for _ in range(3)]
    await settle()
    assert line.waiting_by_run() == {"greedy": 2, "small": 2}
    with pytest.raises(LineFull):
        small[2][1].result()
    put_out = [place for place, task in starts.waiting if task.done() and task.exception() and place.run == "greedy"]
    assert [place.position for place in put_out[:2]] == [4, 4], "the last one of the longest part"
    await starts.close()
    assert (line.used, line.waiting) == (1, 0)


async def test_nobody_may_wait() -> None:
    """SANDBOX_START_QUEUE=0 would refuse a start for which there is a slot."""
    line = FairLine(1, most_waiting=0)
    await line.acquire(Place("a"))
    with pytest.raises(LineFull):
        await line.acquire(Place("b"))
    line.release("a")
    await line.acquire(Place("b"))


async def test_who_gives_up_knows_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal without a position, or with an estimate made of nothing."""
    now = 1000.0
    monkeypatch.setattr("sandbox_server.pool.fair.time.monotonic", lambda: now)
    line = FairLine(2)
    starts = Starts(line)
    for run in "aabbb":
        starts.begin(run)
    await settle()
    place, task = starts.begin("a")
    await settle()
    task.cancel()
    await settle()
    assert (place.position, place.estimate_s) == (3, None), "nothing was freed yet"
    for _ in range(3):
        now += 10.0
        starts.end(starts.holding[0])
        await settle()
    place, task = starts.begin("c")
    for _ in "cc":
        place, task = starts.begin("c")
    await settle()
    task.cancel()
    await settle()
    assert place.position == 3
    assert place.estimate_s == pytest.approx(3 * 10.0)
    now = 1700.0
    assert line.estimate_s(1) is None, "that was long ago"
    await starts.close()


async def test_sessions_of_before_count() -> None:
    """After a restart more may be held than the capacity is; nobody may be served until that is worked off."""
    starts = Starts(FairLine(1))
    starts.line.hold("old")
    starts.line.hold("old")
    starts.begin("new")
    await settle()
    starts.line.release("old")
    await settle()
    assert starts.got == []
    starts.line.release("old")
    await settle()
    assert starts.got == ["new"] and starts.line.held == {"new": 1}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from("abc")),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        # both in one round of the loop: the start is served and cut off at once
        st.tuples(st.just("end and cancel"), st.integers(0, 9)),
    ),
    max_size=60,
)


async def consistent(starts: Starts, most_waiting: int) -> None:
    """What the line says of itself is what the tasks see."""
    await settle()
    line = starts.line
    assert line.used == len(starts.holding) <= line.capacity
    assert line.held == Counter(starts.holding)
    alive = [place for place, task in starts.waiting if not task.done()]
    assert line.waiting == len(alive) <= most_waiting
    assert not alive or line.used == line.capacity, "somebody waits beside a free one"
    assert sorted(line.position(place) for place in alive) == list(range(1, len(alive) + 1))


async def step(starts: Starts, what: str, which: int) -> None:
    """One of the things that can happen."""
    alive = [one for one in starts.waiting if not one[1].done()]
    if what == "begin":
        starts.begin("abc"[which % 3])
    if "end" in what and starts.holding:
        ended = starts.holding[which % len(starts.holding)]
        held, served = Counter(starts.holding), len(starts.got)
        held[ended] -= 1
        starts.end(ended)
        if what == "end":
            await settle()
            assert all(held[run] == min(held[place.run] for place, _ in alive) for run in starts.got[served:])
    if "cancel" in what and alive:
        alive[which % len(alive)][1].cancel()


# the last one in one round of the loop: the start is served and cut off at once
STEPS = st.lists(st.tuples(st.sampled_from(["begin", "begin", "end", "cancel", "end and cancel"]), st.integers(0, 9)))


@settings(deadline=None, max_examples=150)
@given(STEPS, st.integers(1, 4), st.integers(0, 6))
def test_whatever_comes(steps: list[tuple[str, int]], capacity: int, most_waiting: int) -> None:
    """A slot is lost or given twice, or a run is served before one that holds less."""

    async def play() -> None:
        starts = Starts(FairLine(capacity, most_waiting=most_waiting))
        for what, which in steps:
            await step(starts, what, which)
            await consistent(starts, most_waiting)
        await starts.close()
        for run in list(starts.holding):
            starts.end(run)
        line = starts.line
        assert (line.used, line.waiting, line.held, line.waiting_by_run()) == (0, 0, {}, {})

    asyncio.run(play())


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd"), max_size=6))
def test_the_position_is_the_one_it_will_have(waiting: list[str], held: list[str]) -> None:
    """A start is told that it is the next, and is not."""

    async def play() -> None:
        line = FairLine(0)
        for run in held:
            line.hold(run)
        line.capacity = line.used
        starts = Starts(line)
        for run in waiting:
            starts.begin(run)
        await settle()
        told = {line.position(place): place for place, _ in starts.waiting}
        assert sorted(told) == list(range(1, len(waiting) + 1))
        for number in sorted(told):
            line.capacity += 1
            line.hold("somebody")
            line.release("somebody")
            await settle()
            assert starts.got[number - 1 :] == [told[number].run]
        await starts.close()

    asyncio.run(play())
