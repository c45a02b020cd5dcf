"""The queue of gradings that wait for a slot.

Between runs: a free slot goes to the run with the fewest gradings in slots, and among equals to the run that got its
last slot longest ago. A run's backlog therefore costs another run at most the grading under way.

Within a run, by priority = seconds waited + expected duration (at most `MOST_LEAD_S`) + `AWAITED_LEAD_S` if a reward
request is waiting for the verdict.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from sandbox_server import telemetry
from sandbox_server.grading.base import GradeRequest

MOST_LEAD_S = 300.0
"""Cap on the expected duration as a part of the priority. It bounds overtaking: a grading that has waited this much
plus `AWAITED_LEAD_S` longer than a newcomer of its run always goes first."""

AWAITED_LEAD_S = 60.0
"""Seconds of priority for a grading whose verdict a reward request is waiting for."""

_RUNS = 1024  # runs whose last slot is remembered


@dataclass(eq=False, slots=True)
class Ticket:
    """One grading: its place in the queue, then its slot."""

    request: GradeRequest
    expected_s: float
    sids: set[str]
    """The sessions that share this grading."""
    since: float = field(default_factory=time.monotonic)
    granted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while it holds a slot."""


class SlotQueue:
    """Hands out `slots` slots. Long gradings go first, so that none of them is left running alone at the end."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: list[Ticket] = []
        self._uncrowded = asyncio.Event()
        """Set while no grading waits for a slot."""
        self._uncrowded.set()
        self._awaited: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        """Slots held, by run."""
        self._served: OrderedDict[str, None] = OrderedDict()
        """Runs, ordered by when each got its last slot."""

    @property
    def full(self) -> bool:
        """Whether a newcomer would have to wait."""
        return self._free <= 0

    @contextmanager
    def awaited(self, sid: str) -> Iterator[None]:
        """Raise the priority of the grading of `sid` while in the block: a reward request is waiting for it."""
        self._awaited[sid] += 1
        try:
            yield
        finally:
            self._awaited[sid] -= 1
            if not self._awaited[sid]:
                del self._awaited[sid]

    async def wait_until_uncrowded(self) -> None:
        """Return once no grading waits for a slot."""
        await self._uncrowded.wait()

    async def enter(self, ticket: Ticket) -> None:
        """Wait for a slot; `leave` gives it back. If the caller is cancelled, it holds no slot."""
        self._waiting.append(ticket)
        self._grant()
        try:
            with telemetry.GRADINGS_WAITING.track_inprogress():
                await ticket.granted.wait()
        except BaseException:
            if ticket.granted.is_set():
                self.leave(ticket)
            else:
                self._waiting.remove(ticket)
                self._note_crowd()
            raise

    def leave(self, ticket: Ticket) -> None:
        """Give back the slot of `ticket` to the next in the queue. `ticket` may enter again."""
        ticket.granted.clear()
        telemetry.GRADINGS_RUNNING.dec()
        self._free += 1
        self._running[ticket.request.run] -= 1
        self._running += Counter()  # drops runs with no slot left
        self._grant()

    @asynccontextmanager
    async def released(self, ticket: Ticket) -> AsyncIterator[None]:
        """Give back the slot of `ticket` for the block, then queue for a slot again.

        After an exception in the block `ticket` holds no slot.
        """
        self.leave(ticket)
        yield
        await self.enter(ticket)

    def next(self) -> list[Ticket]:
        """The waiting gradings, next one first."""
        return list(self._in_order())

    def _in_order(self) -> Iterator[Ticket]:
        runs: dict[str, deque[Ticket]] = {}
        for ticket in sorted(self._waiting, key=self._rank):
            runs.setdefault(ticket.request.run, deque()).append(ticket)
        running = self._running.copy()
        served = {run: number for number, run in enumerate(self._served, start=1)}
        latest = len(served)
        while runs:
            run = min(runs, key=lambda run: (running[run], served.get(run, 0)))  # ties: best rank
            yield runs[run].popleft()
            if not runs[run]:
                del runs[run]
            running[run] += 1
            served[run] = latest = latest + 1

    def _rank(self, ticket: Ticket) -> float:
        # Time since which the grading counts as waiting: `since`, put back by its leads. The earliest goes first.
        awaited = any(sid in self._awaited for sid in ticket.sids)
        return ticket.since - min(ticket.expected_s, MOST_LEAD_S) - AWAITED_LEAD_S * awaited

    def _grant(self) -> None:
        while self._free > 0 and self._waiting:
            ticket = next(self._in_order())
            run = ticket.request.run
            self._waiting.remove(ticket)
            self._free -= 1
            self._running[run] += 1
            self._served[run] = None
            self._served.move_to_end(run)
            if len(self._served) > _RUNS:
                self._served.popitem(last=False)
            telemetry.GRADINGS_RUNNING.inc()
            ticket.granted.set()
        self._note_crowd()

    def _note_crowd(self) -> None:
        if self._waiting:
            self._uncrowded.clear()
        else:
            self._uncrowded.set()
