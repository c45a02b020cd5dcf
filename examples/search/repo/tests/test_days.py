from datetime import date

from almanac.days import Span, day_of_year, is_leap


def test_leap_years():
    assert [year for year in (1900, 2000, 2023, 2024) if is_leap(year)] == [2000, 2024]


def test_days_of_a_span():
    span = Span(date(2024, 2, 28), date(2024, 3, 1))
    assert len(span) == len(list(span.days())) == 3
    assert day_of_year(span.last) == 61
