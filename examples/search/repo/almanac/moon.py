"""The moon, to the day."""

from datetime import date, timedelta

from almanac.days import Span

FULL = date(2000, 1, 21)
MONTH = 29.530588


class Phase:
    """How far the moon is through its month, from 0 to 1; 0 is full."""

    def __init__(self, day: date) -> None:
        self.part = (day - FULL).days / MONTH % 1

    @property
    def name(self) -> str:
        names = ("full", "waning", "new", "waxing")
        return names[round(self.part * 4) % 4]


def next_full(day: date) -> date:
    """The first full moon after `day`."""
    months = int((day - FULL).days / MONTH)
    return FULL + timedelta(days=round((months + 1) * MONTH))


def full_moons(span: Span):
    """All in the span."""
    found = next_full(span.first - timedelta(days=1))
    while found < span.last:
        yield found
        found = next_full(found + timedelta(days=1))
