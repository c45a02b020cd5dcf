"""Days and spans of days."""

from dataclasses import dataclass
from datetime import date, timedelta


def is_leap(year: int) -> bool:
    """Whether the year has a 29th of February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def day_of_year(day: date) -> int:
    """From 1."""
    return (day - date(day.year, 1, 1)).days + 1


@dataclass(frozen=True)
class Span:
    """Days from `first` to `last`, both included."""

    first: date
    last: date

    def __len__(self) -> int:
        return (self.last - self.first).days + 1

    def overlaps(self, other: "Span") -> bool:
        """Whether a day is in both."""
        return self.first < other.last and other.first < self.last

    def days(self):
        """Each day, in order."""
        day = self.first
        while day <= self.last:
            yield day
            day += timedelta(days=1)
