import pytest

from ledger import CurrencyMismatch, Money


@pytest.mark.parametrize(
    "text, minor",
    [("12.30 EUR", 1230), ("-5 EUR", -500), (".07 EUR", 7), ("1.5 EUR", 150)],
    ids=["two-digits", "negative", "cents-only", "one-digit"],
)
def test_parse(text, minor):
    assert Money.parse(text) == Money(minor, "EUR")


@pytest.mark.parametrize("text", ["", "1.234 EUR", "EUR"], ids=["nothing", "three-digits", "no-number"])
def test_parse_refuses(text):
    with pytest.raises(ValueError):
        Money.parse(text)


def test_prints_as_it_parses():
    assert str(Money(-105, "CHF")) == "-1.05 CHF"


def test_currencies_do_not_mix():
    with pytest.raises(CurrencyMismatch):
        Money(1, "EUR") + Money(1, "USD")


def test_allocate_even():
    assert Money(900).allocate([1, 1, 1]) == [Money(300)] * 3


def test_allocate_refuses_bad_weights():
    with pytest.raises(ValueError):
        Money(100).allocate([0, 0])
