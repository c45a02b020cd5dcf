"""All that the rules look at, read once and kept for some seconds, so that many who look cost as much as one."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_server import clock
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import Group, GroupKind, PassRate, Unsound, VerdictCount
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.insight import word
from sandbox_server.insight.rates import DAY_S, PassRates
from sandbox_server.insight.wall import Wall, wall_by_run, wall_of
from sandbox_server.insight.word import Evidence, Finding, Word
from sandbox_server.slices import sliced
from sandbox_server.state.nodes import NodeRecord

_FRESH_S = 5.0
_KEPT = 32
"""Overviews: of that many runs and windows."""
_GROUPS = 5000
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Overview:
    """What is wrong, and what that rests on. Windows end at `at` and a day before it."""

    at: float
    window_s: float
    run: str | None
    word: Word
    findings: Sequence[Finding]
    now: Sequence[VerdictCount]
    before: Sequence[VerdictCount]
    causes: Mapping[str, int]
    """Kind of cause -> masked verdicts of the window."""
    ends: Mapping[str, int]
    """Why sessions ended in the window."""
    groups: Mapping[GroupKind, int]
    masked_members: int
    """Masked verdicts in groups that have unmasked ones."""
    wall: Wall
    wall_before: Wall
    wall_by_run: Mapping[str, Wall]
    fell: Sequence[PassRate]
    rose: Sequence[PassRate]
    unsound: Sequence[Unsound]
    tripwires: Mapping[str, int]
    """Sign of tampering -> sessions of the window that have it."""
    nodes: Sequence[NodeRecord]


class Insight:
    """The one interface to what is known of many sessions; pages, JSON and terminal read through it.

    Every method raises CatalogueUnavailable, StateUnavailable. With nobody asking it does nothing.
    """

    def __init__(
        self,
        counts: Counts,
        listing: Listing,
        search: ActionSearch,
        nodes: Callable[[], Awaitable[Sequence[NodeRecord]]],
    ) -> None:
        self.counts = counts
        self.listing = listing
        self.search = search
        self.rates = PassRates(counts)
        self._nodes = nodes
        self._kept: dict[tuple[str | None, float], tuple[float, asyncio.Task[Overview]]] = {}
        self._reading = asyncio.Lock()  # one after the other is sooner, on average, than all at once, and calmer

    async def overview(self, *, run: str | None = None, window_s: float = 3600.0) -> Overview:
        """As of now, or of up to 5 s ago."""
        key, now = (run, window_s), time.monotonic()
        self._kept = {k: kept for k, kept in self._kept.items() if now - kept[0] < _FRESH_S or not kept[1].done()}
        if key not in self._kept:
            if len(self._kept) >= _KEPT:
                return await self._read(run, window_s)
            reading = asyncio.create_task(self._read(run, window_s))
            reading.add_done_callback(_heard)  # who asked may have gone
            self._kept[key] = (now, reading)
        # a viewer that goes takes nothing from the others who wait
        return await asyncio.shield(self._kept[key][1])

    def forget(self) -> None:
        """Read overviews anew at the next question."""
        self._kept.clear()

    async def _read(self, run: str | None, window_s: float) -> Overview:
        async with self._reading:
            # the first rates of an hour take as long as half of the rest
            rates = asyncio.create_task(self.rates.now())
            rates.add_done_callback(_heard)
            try:
                return await self._overview(run, window_s, rates)
            finally:
                rates.cancel()

    async def _overview(self, run: str | None, window_s: float, rates: "Awaitable[Sequence[PassRate]]") -> Overview:
        at, counts = clock.now(), self.counts
        since, day_ago = at - window_s, at - DAY_S
        now = await counts.verdicts(since, at, run)
        before = await counts.verdicts(day_ago - window_s, day_ago, run)
        causes = await counts.masked_causes(since, at, run)
        ends = await counts.ends(since, at, run)
        groups = await counts.groups(since, run=run, limit=_GROUPS)
        timed = await counts.timed(since, at, run=run)
        timed_before = await counts.timed(day_ago - window_s, day_ago, run=run)
        unsound = await counts.unsound(since, run)
        fell, rose, rated = word.jumps(await rates)
        nodes = await self._nodes()
        wall, wall_before = await sliced(wall_of(some) for some in (timed, timed_before))
        kinds = Counter(await sliced(group.kind for group in groups))
        found = word.findings(Evidence(now, before, causes, ends, groups, wall, nodes, unsound, fell, rated, run))
        await asyncio.sleep(0)  # actions wait for the event loop too
        return Overview(
            at=at,
            window_s=window_s,
            run=run,
            word=word.word_of(found),
            findings=found,
            now=now,
            before=before,
            causes=causes,
            ends=ends,
            groups=dict(kinds),
            masked_members=sum(group.masked for group in groups if _has_unmasked(group)),
            wall=wall,
            wall_before=wall_before,
            wall_by_run=wall_by_run(timed),
            fell=fell[:_SHOWN],
            rose=rose[:_SHOWN],
            unsound=unsound[:_SHOWN],
            tripwires=dict(Counter(sign for one in timed for sign in one.tripwires)),
            nodes=nodes,
        )


def _heard(done: "asyncio.Task[Any]") -> None:
    """Its failure needs nobody who waits for it."""
    if not done.cancelled():
        done.exception()


def _has_unmasked(group: Group) -> bool:
    return group.masked < group.graded
