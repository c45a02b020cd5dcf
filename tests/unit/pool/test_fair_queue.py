"""Runs that want the same few things: each gets its share, none starves another, nothing is lost."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_server.pool.fair_queue import FairQueue, QueueFull, Ticket


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


class Starts:
    """Tasks that each take a slot and hold it until told to release it."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue = queue
        self.got: list[str] = []
        self.holding: list[str] = []
        self.waiting: list[tuple[Ticket, asyncio.Task[None]]] = []

    def begin(self, run: str) -> tuple[Ticket, asyncio.Task[None]]:
        ticket = Ticket(run)
        one = (ticket, asyncio.create_task(self._one(ticket)))
        self.waiting.append(one)
        return one

    async def _one(self, ticket: Ticket) -> None:
        await self.queue.acquire(ticket)
        self.got.append(ticket.run)
        self.holding.append(ticket.run)

    def end(self, run: str) -> None:
        self.holding.remove(run)
        self.queue.release(run)

    async def close(self) -> None:
        for _, task in self.waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in self.waiting), return_exceptions=True)


async def test_a_thousand_starts_of_one_run_do_not_starve_another() -> None:
    """First come, first served would let a second trainer wait for all starts of the first."""
    starts = Starts(FairQueue(4))
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
    """With a single slot all runs hold nothing when it frees: the oldest ticket alone would let a backlog through."""
    starts = Starts(FairQueue(1))
    for run in "aaaabbc":
        starts.begin(run)
    await settle()
    for _ in range(6):
        starts.end(starts.holding[0])
        await settle()
    assert "".join(starts.got) == "abcabaa"
    await starts.close()


async def test_a_full_line_is_shared_too() -> None:
    """A run that fills the queue would keep all others out of it with 503."""
    queue = FairQueue(1, most_waiting=4)
    starts = Starts(queue)
    for _ in range(5):
        starts.begin("greedy")
    await settle()
    ticket, refused = starts.begin("greedy")
    await settle()
    with pytest.raises(QueueFull):
        refused.result()
    assert ticket.position == 5
    small = [starts.begin("small") for _ in range(3)]
    await settle()
    assert queue.waiting_by_run() == {"greedy": 2, "small": 2}
    with pytest.raises(QueueFull):
        small[2][1].result()
    put_out = [ticket for ticket, task in starts.waiting if task.done() and task.exception() and ticket.run == "greedy"]
    assert [ticket.position for ticket in put_out[:2]] == [4, 4], "the last one of the longest part"
    await starts.close()
    assert (queue.used, queue.waiting) == (1, 0)


async def test_two_runs_do_not_put_each_other_out() -> None:
    """With one ticket more than the other run has, each start of the one would refuse a start of the other."""
    queue = FairQueue(1, most_waiting=3)
    starts = Starts(queue)
    for run in ("a", "a", "a", "b"):
        starts.begin(run)
    await settle()
    assert queue.waiting_by_run() == {"a": 2, "b": 1}
    _, refused = starts.begin("b")
    await settle()
    with pytest.raises(QueueFull):
        refused.result()
    assert queue.waiting_by_run() == {"a": 2, "b": 1}
    await starts.close()


async def test_nobody_may_wait() -> None:
    """SANDBOX_START_QUEUE=0 would refuse a start for which there is a slot."""
    queue = FairQueue(1, most_waiting=0)
    await queue.acquire(Ticket("a"))
    with pytest.raises(QueueFull):
        await queue.acquire(Ticket("b"))
    queue.release("a")
    await queue.acquire(Ticket("b"))


async def test_who_gives_up_knows_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal without a position, or with an estimate made of nothing."""
    now = 1000.0
    monkeypatch.setattr("sandbox_server.pool.fair_queue.time.monotonic", lambda: now)
    queue = FairQueue(2)
    starts = Starts(queue)
    for run in "aabbb":
        starts.begin(run)
    await settle()
    ticket, task = starts.begin("a")
    await settle()
    task.cancel()
    await settle()
    assert (ticket.position, ticket.estimate_s) == (3, None), "nothing was freed yet"
    for _ in range(3):
        now += 10.0
        starts.end(starts.holding[0])
        await settle()
    ticket, task = starts.begin("c")
    for _ in "cc":
        ticket, task = starts.begin("c")
    await settle()
    task.cancel()
    await settle()
    assert ticket.position == 3
    assert ticket.estimate_s == pytest.approx(3 * 10.0)
    now = 1700.0
    assert queue.estimate_s(1) is None, "that was long ago"
    await starts.close()


async def test_sessions_of_before_count() -> None:
    """After a restart more slots may be held than there are; no start is served until enough are released."""
    starts = Starts(FairQueue(1))
    starts.queue.hold("old")
    starts.queue.hold("old")
    starts.begin("new")
    await settle()
    starts.queue.release("old")
    await settle()
    assert starts.got == []
    starts.queue.release("old")
    await settle()
    assert starts.got == ["new"] and starts.queue.held == {"new": 1}


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
    """What the queue says of itself is what the tasks see."""
    await settle()
    queue = starts.queue
    assert queue.used == len(starts.holding) <= queue.capacity
    assert queue.held == Counter(starts.holding)
    alive = [ticket for ticket, task in starts.waiting if not task.done()]
    assert queue.waiting == len(alive) <= most_waiting
    assert not alive or queue.used == queue.capacity, "somebody waits beside a free one"
    assert sorted(queue.position(ticket) for ticket in alive) == list(range(1, len(alive) + 1))


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
            assert all(held[run] == min(held[ticket.run] for ticket, _ in alive) for run in starts.got[served:])
    if "cancel" in what and alive:
        alive[which % len(alive)][1].cancel()


# the last one in one round of the loop: the start is served and cut off at once
STEPS = st.lists(st.tuples(st.sampled_from(["begin", "begin", "end", "cancel", "end and cancel"]), st.integers(0, 9)))


@settings(deadline=None, max_examples=150)
@given(STEPS, st.integers(1, 4), st.integers(0, 6))
def test_whatever_comes(steps: list[tuple[str, int]], capacity: int, most_waiting: int) -> None:
    """A slot is lost or given twice, or a run is served before one that holds less."""

    async def play() -> None:
        starts = Starts(FairQueue(capacity, most_waiting=most_waiting))
        for what, which in steps:
            await step(starts, what, which)
            await consistent(starts, most_waiting)
        await starts.close()
        for run in list(starts.holding):
            starts.end(run)
        queue = starts.queue
        assert (queue.used, queue.waiting, queue.held, queue.waiting_by_run()) == (0, 0, {}, {})

    asyncio.run(play())


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from("abcd"), max_size=12), st.lists(st.sampled_from("abcd"), max_size=6))
def test_the_position_is_the_one_it_will_have(waiting: list[str], held: list[str]) -> None:
    """A start is told that it is the next, and is not."""

    async def play() -> None:
        queue = FairQueue(0)
        for run in held:
            queue.hold(run)
        queue.capacity = queue.used
        starts = Starts(queue)
        for run in waiting:
            starts.begin(run)
        await settle()
        told = {queue.position(ticket): ticket for ticket, _ in starts.waiting}
        assert sorted(told) == list(range(1, len(waiting) + 1))
        for number in sorted(told):
            queue.capacity += 1
            queue.hold("somebody")
            queue.release("somebody")
            await settle()
            assert starts.got[number - 1 :] == [told[number].run]
        await starts.close()

    asyncio.run(play())


async def test_a_displaced_start_that_is_cancelled_at_once_frees_nothing() -> None:
    """Its client hung up in the same moment: a place that it never held was given away, and its position was lost."""
    queue = FairQueue(1, most_waiting=3)
    starts = Starts(queue)
    for _ in range(4):
        starts.begin("greedy")
    await settle()
    ticket, task = starts.waiting[-1]
    newcomer = asyncio.create_task(queue.acquire(Ticket("small")))
    await asyncio.sleep(0)  # the newcomer has displaced it; its own task has not run yet
    task.cancel()
    await settle()
    assert ticket.position == 3 and (queue.used, dict(queue.held)) == (1, {"greedy": 1})
    newcomer.cancel()
    await starts.close()


async def test_releases_of_long_ago_tell_nothing_about_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a quiet night the first start that waits would be told an estimate of hours."""
    now = 0.0
    monkeypatch.setattr("sandbox_server.pool.fair_queue.time.monotonic", lambda: now)
    queue = FairQueue(1)
    for at in (0.0, 30_000.0, 30_010.0, 30_020.0):
        now = at
        await queue.acquire(Ticket("a"))
        queue.release("a")
    assert queue.estimate_s(3) == 30.0


async def test_the_run_that_was_served_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose the labels of runs: a busy run that is forgotten for them would go before all others."""
    monkeypatch.setattr("sandbox_server.pool.fair_queue._REMEMBERED", 2)
    queue = FairQueue(1)
    for run in "aba":
        await queue.acquire(Ticket(run))
        queue.release(run)
    starts = Starts(queue)
    for run in "cab":
        starts.begin(run)
    await settle()
    starts.end("c")
    await settle()
    assert starts.got == ["c", "b"]
    await starts.close()
