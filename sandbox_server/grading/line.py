"""The line of gradings before their slots: long ones first, awaited ones sooner, nobody overtaken for ever."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandbox_server import telemetry
from sandbox_server.grading.base import GradeRequest

MOST_LEAD_S = 300.0
"""A grading's expected seconds count as so much waiting already done, up to this: whoever has waited this much longer
than a newcomer, and the lead of an awaited one, goes before it however long that takes."""

AWAITED_LEAD_S = 60.0
"""What a reward request that waits for a grading is worth."""


@dataclass(eq=False, slots=True)
class Turn:
    """One grading's place in the line, then its slot."""

    request: GradeRequest
    expected_s: float
    sids: set[str]
    """The sessions that share it."""
    since: float = field(default_factory=time.monotonic)
    granted: asyncio.Event = field(default_factory=asyncio.Event)


class Line:
    """`slots` gradings run at a time. Of those that wait, the longest first, so that none is left running alone."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: list[Turn] = []
        self._awaited: Counter[str] = Counter()

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
                self.leave()
            else:
                self._waiting.remove(turn)
            raise

    def leave(self) -> None:
        """The slot is free; the next in line has it."""
        telemetry.GRADINGS_RUNNING.dec()
        self._free += 1
        self._grant()

    def next(self) -> list[Turn]:
        """Those that wait, the next one first."""
        return sorted(self._waiting, key=self._rank)

    def _rank(self, turn: Turn) -> float:
        # the moment from which it counts as waiting; the earliest goes first
        awaited = any(sid in self._awaited for sid in turn.sids)
        return turn.since - min(turn.expected_s, MOST_LEAD_S) - AWAITED_LEAD_S * awaited

    def _grant(self) -> None:
        while self._free > 0 and self._waiting:
            turn = min(self._waiting, key=self._rank)
            self._waiting.remove(turn)
            self._free -= 1
            telemetry.GRADINGS_RUNNING.inc()
            turn.granted.set()
