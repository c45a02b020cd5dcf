"""A fair queue for a bounded number of places: the run that holds least goes next (max-min fairness).

A freed place goes to the waiting run that holds least; among equals to the one that was served longest ago; within a
run first come, first served. So a run with a thousand waiting starts delays another run by at most one turn.
The queue is bounded, fairly too. If it is full, a newcomer displaces the last ticket of the run with the most waiting
tickets. It does so only if that run has more tickets than the newcomer's run would have with the newcomer.
The queue only counts; it makes and removes nothing.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

_LATELY = 64  # releases used to estimate the rate
_LATELY_S = 600.0
_REMEMBERED = 1024  # runs whose last turn is remembered


class QueueFull(Exception):
    """The ticket cannot wait: the queue is full, or a newcomer of another run displaced it."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A request's entry in the queue; after an unsuccessful wait it has the last position."""

    run: str
    position: int | None = None
    """1-based position at the end of an unsuccessful wait; else None."""
    estimate_s: float | None = None
    """Estimated further wait in seconds at that position, by the recent rate of releases; None if unknown."""
    _number: int = 0
    _granted: asyncio.Future[None] | None = field(default=None, repr=False)


class FairQueue:
    """A queue for `capacity` places, in which at most `most_waiting` tickets wait (None: no bound)."""

    def __init__(self, capacity: int, *, most_waiting: int | None = None) -> None:
        self.capacity = capacity
        self._most_waiting = most_waiting
        self._held: Counter[str] = Counter()
        self._used = 0
        self._waiting: dict[str, deque[Ticket]] = {}
        self._count = 0
        self._served: OrderedDict[str, int] = OrderedDict()
        self._numbers = count(1)
        self._freed: deque[float] = deque(maxlen=_LATELY)

    @property
    def used(self) -> int:
        """Number of places held."""
        return self._used

    @property
    def waiting(self) -> int:
        """Number of waiting tickets."""
        return self._count

    @property
    def held(self) -> Mapping[str, int]:
        """Run -> places that it holds; runs that hold none are left out."""
        return self._held

    def waiting_by_run(self) -> dict[str, int]:
        """Run -> its number of waiting tickets."""
        return {run: len(tickets) for run, tickets in self._waiting.items()}

    def hold(self, run: str) -> None:
        """Take a place for `run` at once, even past the capacity; for places held before this process started."""
        self._held[run] += 1
        self._used += 1

    def release(self, run: str) -> None:
        """Free a place of `run` and give it to the next ticket."""
        self._freed.append(time.monotonic())
        self._give_back(run)

    async def acquire(self, ticket: Ticket) -> None:
        """Wait for a place, to be freed by `release`. If cancelled, holds none; `ticket` then has its last position.

        Raises:
            QueueFull: the queue is full, or a ticket of a run with fewer waiting tickets has displaced this one.
        """
        if self._used < self.capacity:  # then no ticket waits
            self._take(ticket.run)
            return
        self._make_room(ticket)
        ticket._number = next(self._numbers)
        granted = ticket._granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(ticket.run, deque()).append(ticket)
        self._count += 1
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self._give_back(ticket.run)  # cancelled right after it was granted
            else:
                self._leave(ticket)
            raise

    def position(self, ticket: Ticket) -> int:
        """1-based position of `ticket` in the queue, assuming no new arrivals and no releases."""
        own = self._waiting.get(ticket.run, ())
        before = next((number for number, other in enumerate(own) if other is ticket), len(own))
        level = self._held[ticket.run] + before  # places that its run will hold when its turn comes
        ahead = before
        for run, tickets in self._waiting.items():
            rising = level - self._held[run]
            if run != ticket.run and rising >= 0:
                # of two runs that reach the same level, the one with fewer turns until then was served longer ago
                sooner = rising < before or (rising == before and self._order(run)[1:] < self._order(ticket.run)[1:])
                ahead += min(len(tickets), rising + sooner)
        return ahead + 1

    def estimate_s(self, position: int) -> float | None:
        """Estimated seconds until `position` is served, by the recent rate of releases; None if unknown."""
        now = time.monotonic()
        while self._freed and now - self._freed[0] > _LATELY_S:
            self._freed.popleft()
        if len(self._freed) < 2:
            return None
        return position * (now - self._freed[0]) / (len(self._freed) - 1)

    def _order(self, run: str) -> tuple[int, int, int]:
        tickets = self._waiting.get(run)
        return self._held[run], self._served.get(run, 0), tickets[0]._number if tickets else 0

    def _take(self, run: str) -> None:
        self.hold(run)
        self._served[run] = next(self._numbers)
        self._served.move_to_end(run)
        if len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)

    def _give_back(self, run: str) -> None:
        self._held[run] -= 1
        if not self._held[run]:
            del self._held[run]
        self._used -= 1
        while self._waiting and self._used < self.capacity:
            run = min(self._waiting, key=self._order)
            ticket = self._pop(run, 0)
            if ticket._granted is not None and not ticket._granted.done():  # else it has just been cancelled
                self._take(run)
                ticket._granted.set_result(None)

    def _make_room(self, newcomer: Ticket) -> None:
        if self._most_waiting is None or self._count < self._most_waiting:
            return
        longest = max(self._waiting, key=lambda run: len(self._waiting[run]), default=newcomer.run)
        # a difference of one ticket is not enough: two runs would displace each other's tickets forever
        if len(self._waiting.get(newcomer.run, ())) + 1 >= len(self._waiting.get(longest, ())):
            newcomer.position = self._count + 1
            newcomer.estimate_s = self.estimate_s(newcomer.position)
            raise QueueFull
        last = self._waiting[longest][-1]
        self._note(last)
        self._pop(longest, -1)
        if last._granted is not None and not last._granted.done():
            last._granted.set_exception(QueueFull())

    def _leave(self, ticket: Ticket) -> None:
        tickets = self._waiting.get(ticket.run, ())
        if ticket in tickets:
            self._note(ticket)
            self._pop(ticket.run, tickets.index(ticket))
        else:
            ticket.position = ticket.position or 1  # it was displaced or skipped just before

    def _note(self, ticket: Ticket) -> None:
        ticket.position = self.position(ticket)
        ticket.estimate_s = self.estimate_s(ticket.position)

    def _pop(self, run: str, index: int) -> Ticket:
        tickets = self._waiting[run]
        ticket = tickets[index]
        del tickets[index]
        self._count -= 1
        if not tickets:
            del self._waiting[run]
        return ticket
