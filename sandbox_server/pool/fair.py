"""Who goes next when many want what there is little of: the run that holds least (max-min fairness).

A run is whoever a start belongs to. What frees goes to the waiting run that holds least; among equals to the one
that was served longest ago; within a run first come, first served. So a run with a thousand starts waiting costs
another one at most the turn that is being given. The queue is bounded, and fair there too: when it is full, a newcomer
takes the place of the last one of the run with the longest part of it, if that is longer than its own.
Keeps accounts only: nothing is made or removed here.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

_LATELY = 64  # things freed that tell how fast they free
_LATELY_S = 600.0
_REMEMBERED = 1024  # runs that hold nothing now, and when each was served last


class QueueFull(Exception):
    """As many wait as may, none of them of a run with more tickets than this one's."""


@dataclass(eq=False, slots=True)
class Ticket:
    """One who waits; afterwards, where it stood when it gave up."""

    run: str
    position: int | None = None
    """1: the next; None: it did not have to give up."""
    estimate_s: float | None = None
    """Seconds that it would still have waited, by how fast things freed lately; None: not known."""
    _number: int = 0
    _granted: asyncio.Future[None] | None = field(default=None, repr=False)


class FairQueue:
    """`capacity` may be held at a time, and at most `most_waiting` wait for more (None: any number)."""

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
        """How many are held."""
        return self._used

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._count

    @property
    def held(self) -> Mapping[str, int]:
        """Run -> how many it holds; runs that hold none are not in it."""
        return self._held

    def waiting_by_run(self) -> dict[str, int]:
        """Run -> how many of it wait."""
        return {run: len(tickets) for run, tickets in self._waiting.items()}

    def hold(self, run: str) -> None:
        """Take one for `run` without asking, also past the capacity: it was held before this process began."""
        self._held[run] += 1
        self._used += 1

    def release(self, run: str) -> None:
        """One of `run` is free: who is next has it."""
        self._freed.append(time.monotonic())
        self._give_back(run)

    async def acquire(self, ticket: Ticket) -> None:
        """Wait for one; `release` gives it back. Who is cancelled holds none, and `ticket` tells where it stood.

        Raises:
            QueueFull: too many wait already, or the ticket went to a run with fewer.
        """
        if self._used < self.capacity:  # then nobody waits
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
                self._give_back(ticket.run)  # cancelled in the moment it was served
            else:
                self._leave(ticket)
            raise

    def position(self, ticket: Ticket) -> int:
        """Which one it is of those that wait, if nobody comes and nobody gives back; 1 is the next."""
        own = self._waiting.get(ticket.run, ())
        before = next((number for number, other in enumerate(own) if other is ticket), len(own))
        level = self._held[ticket.run] + before  # what its run holds when its turn comes
        ahead = before
        for run, tickets in self._waiting.items():
            rising = level - self._held[run]
            if run != ticket.run and rising >= 0:
                # of two that reach the same level the one with fewer turns on the way had its last one longer ago
                sooner = rising < before or (rising == before and self._order(run)[1:] < self._order(ticket.run)[1:])
                ahead += min(len(tickets), rising + sooner)
        return ahead + 1

    def estimate_s(self, position: int) -> float | None:
        """Seconds until `position` is served, at the rate at which things freed lately; None: not known."""
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
            if ticket._granted is not None and not ticket._granted.done():  # else it was cancelled just now
                self._take(run)
                ticket._granted.set_result(None)

    def _make_room(self, newcomer: Ticket) -> None:
        if self._most_waiting is None or self._count < self._most_waiting:
            return
        longest = max(self._waiting, key=lambda run: len(self._waiting[run]), default=newcomer.run)
        # not for one ticket more or less, or two runs would throw each other out for ever
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
            ticket.position = ticket.position or 1  # it was put out, or passed over, in this very moment

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
