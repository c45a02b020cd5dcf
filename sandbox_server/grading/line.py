"""The line of gradings before their slots: long ones first, awaited ones sooner, nobody overtaken for ever.

That is the order within a run. Between runs, a slot goes to the one with the fewest gradings in slots, of equal ones
to the one that got its last slot longest ago: one run's backlog costs another no more than the grading under way.
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
"""A grading's expected seconds count as so much waiting already done, up to this: whoever has waited this much longer
than a newcomer, and the lead of an awaited one, goes before it however long that takes."""

AWAITED_LEAD_S = 60.0
"""What a reward request that waits for a grading is worth."""

_RUNS = 1024  # of which is known when each got its last slot


@dataclass(eq=False, slots=True)
class Turn:
    """One grading's place in the line, then its slot."""

    request: GradeRequest
    expected_s: float
    sids: set[str]
    """The sessions that share it."""
    since: float = field(default_factory=time.monotonic)
    granted: asyncio.Event = field(default_factory=asyncio.Event)
    """It has a slot."""


class Line:
    """`slots` gradings run at a time. Of those that wait, the longest first, so that none is left running alone."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: list[Turn] = []
        self._awaited: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        """Slots by run."""
        self._served: OrderedDict[str, None] = OrderedDict()
        """Runs in the order in which each got its last slot."""

    @property
    def full(self) -> bool:
        """A newcomer would wait."""
        return self._free <= 0

    @contextmanager
    def awaited(self, sid: str) -> Iterator[None]:
        """Somebody waits for the verdict of `sid`."""
        self._awaited[sid] += 1
        try:
            yield
        finally:
            self._awaited[sid] -= 1
            if not self._awaited[sid]:
                del self._awaited[sid]

    async def enter(self, turn: Turn) -> None:
        """Wait for a slot; `leave` gives it back. A caller that is cancelled holds none."""
        self._waiting.append(turn)
        self._grant()
        try:
            with telemetry.GRADINGS_WAITING.track_inprogress():
                await turn.granted.wait()
        except BaseException:
            if turn.granted.is_set():
                self.leave(turn)
            else:
                self._waiting.remove(turn)
            raise

    def leave(self, turn: Turn) -> None:
        """The slot of `turn` is free; the next in line has it. It may enter again."""
        turn.granted.clear()
        telemetry.GRADINGS_RUNNING.dec()
        self._free += 1
        self._running[turn.request.run] -= 1
        self._running += Counter()  # without the runs that have none any more
        self._grant()

    @asynccontextmanager
    async def aside(self, turn: Turn) -> AsyncIterator[None]:
        """`turn` gives its slot back for the block, and waits for one behind it; none after an exception in it."""
        self.leave(turn)
        yield
        await self.enter(turn)

    def next(self) -> list[Turn]:
        """Those that wait, the next one first."""
        return list(self._in_order())

    def _in_order(self) -> Iterator[Turn]:
        runs: dict[str, deque[Turn]] = {}
        for turn in sorted(self._waiting, key=self._rank):
            runs.setdefault(turn.request.run, deque()).append(turn)
        running = self._running.copy()
        served = {run: number for number, run in enumerate(self._served, start=1)}
        latest = len(served)
        while runs:
            run = min(runs, key=lambda run: (running[run], served.get(run, 0)))  # of equal ones the best ranked
            yield runs[run].popleft()
            if not runs[run]:
                del runs[run]
            running[run] += 1
            served[run] = latest = latest + 1

    def _rank(self, turn: Turn) -> float:
        # the moment from which it counts as waiting; the earliest goes first
        awaited = any(sid in self._awaited for sid in turn.sids)
        return turn.since - min(turn.expected_s, MOST_LEAD_S) - AWAITED_LEAD_S * awaited

    def _grant(self) -> None:
        while self._free > 0 and self._waiting:
            turn = next(self._in_order())
            run = turn.request.run
            self._waiting.remove(turn)
            self._free -= 1
            self._running[run] += 1
            self._served[run] = None
            self._served.move_to_end(run)
            if len(self._served) > _RUNS:
                self._served.popitem(last=False)
            telemetry.GRADINGS_RUNNING.inc()
            turn.granted.set()
