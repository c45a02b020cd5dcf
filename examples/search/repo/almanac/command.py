"""`python -m almanac.command YEAR`: the year's full moons."""

import sys
from datetime import date

from almanac.days import Span, day_of_year, is_leap
from almanac.moon import full_moons
from almanac.report.table import Table


def year_table(year: int) -> Table:
    """One row for each full moon."""
    table = Table("day", "date")
    for found in full_moons(Span(date(year, 1, 1), date(year, 12, 31))):
        table.add(day_of_year(found), found)
    return table


def main() -> None:
    """See the module."""
    year = int(sys.argv[1])
    print(f"{year}: {366 if is_leap(year) else 365} days")
    print(year_table(year).render())


if __name__ == "__main__":
    main()
