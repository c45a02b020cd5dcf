"""All that the rules look at, read once and kept for some seconds, so that many who look cost as much as one."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_server import clock
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import Group, GroupKind, PassRate, Unsound, VerdictCount
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.insight import word
from sandbox_server.insight.fresh import Fresh
from sandbox_server.insight.rates import DAY_S, PassRates
from sandbox_server.insight.wall import Wall, Walls
from sandbox_server.insight.word import Evidence, Finding, Word
from sandbox_server.slices import sliced
from sandbox_server.state.nodes import NodeRecord

_FRESH_S = 5.0
_READ_S = 60.0
"""An overview of 1,000,000 sessions takes some 0.3 s."""
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
        self._overviews = Fresh(self._read, for_s=_FRESH_S, most=_KEPT)
        self._jumps = Fresh(self._read_jumps, for_s=_FRESH_S)
        self._reading = asyncio.Lock()  # one after the other is sooner, on average, than all at once, and calmer

    async def overview(self, *, run: str | None = None, window_s: float = 3600.0) -> Overview:
        """As of now, or of up to 5 s ago."""
        return await self._overviews.of((run, window_s))

    def forget(self) -> None:
        """Read everything anew at the next question."""
        self._overviews.forget()
        self._jumps.forget()

    async def _read(self, asked: tuple[str | None, float]) -> Overview:
        try:
            # a database that never answers one must not keep the others waiting for good
            async with self._reading, asyncio.timeout(_READ_S):
                self._jumps.begin(None)  # the first pass rates of an hour take as long as half of the rest
                return await self._overview(*asked)
        except TimeoutError:
            raise CatalogueUnavailable(f"the database gave no overview within {_READ_S:g} s; try again later") from None

    async def _read_jumps(self, _: None) -> word.Jumps:
        return await word.jumps(await self.rates.now())

    async def _overview(self, run: str | None, window_s: float) -> Overview:
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
        fell, rose, rated = await self._jumps.of(None)
        nodes = await self._nodes()
        walls, walls_before = Walls(), Walls()
        await sliced(map(walls.add, timed))
        await sliced(map(walls_before.add, timed_before))
        kinds = Counter(await sliced(group.kind for group in groups))
        found = word.findings(
            Evidence(now, before, causes, ends, groups, walls.of_all, nodes, unsound, fell, rated, run)
        )
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
            wall=walls.of_all,
            wall_before=walls_before.of_all,
            wall_by_run=walls.by_run(),
            fell=fell[:_SHOWN],
            rose=rose[:_SHOWN],
            unsound=unsound[:_SHOWN],
            tripwires=dict(Counter(sign for one in timed for sign in one.tripwires)),
            nodes=nodes,
        )


def _has_unmasked(group: Group) -> bool:
    return group.masked < group.graded
