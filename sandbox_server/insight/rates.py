"""Pass rates: of the last day, compared with the seven days before it; and of one instance by day."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from sandbox_server import clock
from sandbox_server.catalogue.insight.counts import HOUR_S, Counts
from sandbox_server.catalogue.insight.records import PassRate, VerdictSummary
from sandbox_server.slices import sliced
from sandbox_server.tasks import TaskSet
from sandbox_server.verdicts import VerdictName

DAY_S = 86_400.0
_DAY_HOURS = 24
_BASE_HOURS = 7 * _DAY_HOURS

_Rates = Mapping[str, tuple[int, int]]
"""Instance -> (resolved, all)."""


@dataclass(frozen=True, slots=True)
class Day:
    """The gradings of one day (UTC)."""

    begin: float
    graded: int
    """Unmasked gradings; the next field counts only these too."""
    resolved: int
    masked: int
    grade_s: float | None
    """Median seconds of the unmasked gradings of patches; None without any."""


def by_day(gradings: Iterable[tuple[VerdictSummary, float]]) -> list[Day]:
    """Count (verdict, seconds of its grading) by the day of the grading, the newest day first."""
    days: dict[int, list[tuple[VerdictSummary, float]]] = {}
    for summary, grade_s in gradings:
        days.setdefault(int(summary.graded_at // DAY_S), []).append((summary, grade_s))
    return [_day(day * DAY_S, own) for day, own in sorted(days.items(), reverse=True)]


def _day(begin: float, gradings: Sequence[tuple[VerdictSummary, float]]) -> Day:
    unmasked = [(one, grade_s) for one, grade_s in gradings if not one.mask]
    took = [grade_s for one, grade_s in unmasked if one.verdict != VerdictName.EMPTY_PATCH]
    return Day(
        begin=begin,
        graded=len(unmasked),
        resolved=sum(one.verdict == VerdictName.RESOLVED for one, _ in unmasked),
        masked=len(gradings) - len(unmasked),
        grade_s=median(took) if took else None,
    )


class PassRates:
    """Reads counts by the hour, so the last day begins at the last full hour before 24 hours ago.

    The seven days before it are read once an hour, because their counts no longer change.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._base: tuple[int, asyncio.Task[_Rates]] | None = None
        """(first hour of the last day, rates of the seven days before it)."""
        self._tasks = TaskSet("pass rates")

    async def now(self) -> list[PassRate]:
        """Every instance with an unmasked verdict within the eight days. Raises CatalogueUnavailable."""
        begin = int(clock.now() // HOUR_S) - _DAY_HOURS
        base = await asyncio.shield(self._before(begin))  # others may wait for it too
        now = await self._counts.passed(begin)
        none = (0, 0)
        instances = dict.fromkeys([*now, *base])
        return await sliced(PassRate(one, *now.get(one, none), *base.get(one, none)) for one in instances)

    def _before(self, begin: int) -> "asyncio.Task[_Rates]":
        """The task that reads the seven days before hour `begin`; a new one if the last one failed."""
        if self._base is None or self._base[0] != begin or _has_failed(self._base[1]):
            reading = self._tasks.start(self._counts.passed(begin - _BASE_HOURS, begin), name="pass-rates")
            self._base = begin, reading
        return self._base[1]


def _has_failed(reading: "asyncio.Task[_Rates]") -> bool:
    return reading.done() and (reading.cancelled() or reading.exception() is not None)
