"""Pass rates of the last day, compared with those of the seven days before it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_server import clock
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.records import PassRate
from sandbox_server.tasks import TaskSet

DAY_S = 86_400.0
BASE_DAYS = 7
_KEPT_S = 600.0
_SHOWN_S = 3600.0
"""While they are counted again, older counts than this are not shown."""


@dataclass(frozen=True, slots=True)
class _Base:
    """What the last day is compared with: the seven days until `until`."""

    until: float
    counts: Mapping[str, tuple[int, int]]
    """Instance -> (resolved, all)."""


class PassRates:
    """Counts the seven days only every ten minutes: they are most of what there is to count, and hardly change.

    Whoever looks after a longer time sees the former count and begins a new one. So the last day may be up to an hour
    longer.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._base: _Base | None = None
        self._counting: asyncio.Task[_Base] | None = None
        self._tasks = TaskSet("pass rates")

    async def now(self) -> list[PassRate]:
        """Every instance with an unmasked verdict within the eight days. Raises CatalogueUnavailable."""
        at = clock.now()
        base = self._base
        age_s = at - DAY_S - base.until if base else -1.0
        if base is None or not 0 <= age_s < _SHOWN_S:
            base = await asyncio.shield(self._count())  # a viewer that goes takes nothing from the others who wait
        elif age_s >= _KEPT_S:
            self._count()
        now = await self._counts.resolved(base.until, at)
        none = (0, 0)
        return [
            PassRate(one, *now.get(one, none), *base.counts.get(one, none))
            for one in dict.fromkeys([*now, *base.counts])
        ]

    def _count(self) -> "asyncio.Task[_Base]":
        """The count that is under way, or a new one."""
        if self._counting is None:
            self._counting = self._tasks.start(self._counted(), name="pass-rates")
            self._counting.add_done_callback(self._ended)
        return self._counting

    async def _counted(self) -> _Base:
        until = clock.now() - DAY_S
        return _Base(until, await self._counts.resolved(until - BASE_DAYS * DAY_S, until))

    def _ended(self, counting: "asyncio.Task[_Base]") -> None:
        self._counting = None
        if not counting.cancelled() and counting.exception() is None:  # whoever looks next tries again
            self._base = counting.result()
