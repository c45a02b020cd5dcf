"""Reads the evidence for the service's health and caches it for a few seconds."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_server import clock
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.listing import Listing
from sandbox_server.catalogue.insight.records import (
    Group,
    GroupKind,
    PassRate,
    SessionTimings,
    UnsoundInstance,
    VerdictCount,
)
from sandbox_server.catalogue.insight.search import ActionSearch
from sandbox_server.errors import CatalogueUnavailable
from sandbox_server.insight import health_rules
from sandbox_server.insight.health_rules import Evidence, Finding, Word
from sandbox_server.insight.rates import DAY_S, PassRates
from sandbox_server.insight.short_cache import ShortCache
from sandbox_server.insight.wall_time import Wall, Walls
from sandbox_server.slices import sliced
from sandbox_server.state.nodes import NodeRecord

_FRESH_S = 5.0
_READ_S = 60.0
"""Limit on one reading; an overview of 1,000,000 sessions takes some 0.3 s."""
_KEPT = 32
"""Overviews (by run and window) that are cached at a time."""
_GROUPS = 5000
_SHOWN = 20
_EXAMPLES = 3
_SAME_PATCH = "patch:identical to one of another instance"
"""A fix fits only one instance. A patch that passes on several is likely to change how tests run."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The service's health and its evidence: counts of the window that ends at `at`, and of the one a day earlier."""

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
    """Reason -> sessions that ended for it in the window."""
    groups: Mapping[GroupKind, int]
    masked_members: int
    """Masked verdicts in groups that have unmasked ones."""
    wall: Wall
    wall_before: Wall
    wall_by_run: Mapping[str, Wall]
    fell: Sequence[PassRate]
    rose: Sequence[PassRate]
    unsound: Sequence[UnsoundInstance]
    tripwires: Mapping[str, int]
    """Sign of tampering -> sessions that have it, of the up to 300 that ended last."""
    tripped: Mapping[str, Sequence[str]]
    """Sign -> sids of the sessions with it that ended last, at most three."""
    nodes: Sequence[NodeRecord]


class Insight:
    """Statistics over many sessions, for the pages, `/v1` and the terminal. Reads only on request.

    Every method raises CatalogueUnavailable, StateUnavailable.
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
        self._overviews = ShortCache(self._read, for_s=_FRESH_S, most=_KEPT)
        self._jumps = ShortCache(self._read_jumps, for_s=_FRESH_S)
        self._reading = asyncio.Lock()  # one at a time, because on average each then ends sooner than in parallel

    async def overview(self, *, run: str | None = None, window_s: float = 3600.0) -> Overview:
        """The overview of one run (None: of all), at most 5 s old."""
        return await self._overviews.of((run, window_s))

    def forget(self) -> None:
        """Drop everything that is cached."""
        self._overviews.forget()
        self._jumps.forget()

    async def _read(self, asked: tuple[str | None, float]) -> Overview:
        try:
            # bounded: others wait for the lock
            async with self._reading, asyncio.timeout(_READ_S):
                self._jumps.begin(None)  # in parallel: the first read in an hour takes half as long as all the rest
                return await self._overview(*asked)
        except TimeoutError:
            raise CatalogueUnavailable(f"the database gave no overview within {_READ_S:g} s; try again later") from None

    async def _read_jumps(self, _: None) -> health_rules.Jumps:
        return await health_rules.jumps(await self.rates.now())

    async def _overview(self, run: str | None, window_s: float) -> Overview:
        at = clock.now()
        since, day_ago = at - window_s, at - DAY_S
        async with self.counts.together() as counts:
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
        signs = _signs(timed)
        kinds = Counter(await sliced(group.kind for group in groups))
        found = health_rules.findings(
            Evidence(now, before, causes, ends, groups, walls.of_all, nodes, unsound, fell, rated, run)
        )
        await asyncio.sleep(0)  # let actions run
        return Overview(
            at=at,
            window_s=window_s,
            run=run,
            word=health_rules.word_of(found),
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
            tripwires={sign: len(sids) for sign, sids in signs.items()},
            tripped={sign: sids[:_EXAMPLES] for sign, sids in signs.items()},
            nodes=nodes,
        )


def _signs(ended: Sequence[SessionTimings]) -> Mapping[str, Sequence[str]]:
    """Sign of tampering -> sids, in the order of `ended`."""
    signs, instances = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    for one in ended:
        instances[one.patch_sha256].add(one.instance_id)
        for sign in one.tripwires:
            signs[sign].append(one.sid)
    if same := [one.sid for one in ended if one.patch_sha256 and len(instances[one.patch_sha256]) > 1]:
        signs[_SAME_PATCH] = same
    return signs


def _has_unmasked(group: Group) -> bool:
    return group.masked < group.graded
