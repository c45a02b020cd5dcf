"""Pass rates of the last day, compared with those of the seven days before it."""

import asyncio

from sandbox_server import clock
from sandbox_server.catalogue.insight.counts import Counts
from sandbox_server.catalogue.insight.records import PassRate

DAY_S = 86_400.0
BASE_DAYS = 7
_KEPT_S = 600.0


class PassRates:
    """Counts the seven days only every ten minutes: they are most of what there is to count, and hardly change.

    Until then the last day is up to ten minutes longer.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._one_at_a_time = asyncio.Lock()
        self._since = 0.0
        self._before: dict[str, tuple[int, int]] = {}

    async def now(self) -> list[PassRate]:
        """Every instance with an unmasked verdict within the eight days. Raises CatalogueUnavailable."""
        at = clock.now()
        async with self._one_at_a_time:
            if not 0 <= at - DAY_S - self._since < _KEPT_S:
                since = at - DAY_S
                self._before = await self._counts.resolved(since - BASE_DAYS * DAY_S, since)
                self._since = since
            since, before = self._since, self._before
        now = await self._counts.resolved(since, at)
        none = (0, 0)
        return [PassRate(one, *now.get(one, none), *before.get(one, none)) for one in now | before]
