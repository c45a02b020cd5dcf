"""Amounts of one currency, in whole minor units (cents)."""

from dataclasses import dataclass


class CurrencyMismatch(ValueError):
    """Two amounts of different currencies met."""


@dataclass(frozen=True, order=True)
class Money:
    minor: int
    currency: str = "EUR"

    @classmethod
    def parse(cls, text):
        """`"12.30 EUR"` or `"-5 EUR"`."""
        number, _, currency = text.strip().partition(" ")
        sign = -1 if number.startswith("-") else 1
        whole, _, cents = number.lstrip("+-").partition(".")
        if len(cents) > 2 or not (whole or cents):
            raise ValueError(f"not an amount: {text!r}")
        return cls(sign * (int(whole or 0) * 100 + int(cents.ljust(2, "0"))), currency or "EUR")

    def _same(self, other):
        if self.currency != other.currency:
            raise CurrencyMismatch(f"{self.currency} and {other.currency}")

    def __add__(self, other):
        self._same(other)
        return Money(self.minor + other.minor, self.currency)

    def __sub__(self, other):
        self._same(other)
        return Money(self.minor - other.minor, self.currency)

    def __neg__(self):
        return Money(-self.minor, self.currency)

    def allocate(self, weights):
        """Split in proportion to `weights`."""
        total = sum(weights)
        if total <= 0 or min(weights) < 0:
            raise ValueError("weights must be positive")
        return [Money(self.minor * weight // total, self.currency) for weight in weights]

    def __str__(self):
        sign = "-" if self.minor < 0 else ""
        return f"{sign}{abs(self.minor) // 100}.{abs(self.minor) % 100:02d} {self.currency}"
