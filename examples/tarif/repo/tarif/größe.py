"""Sizes and what they cost."""

from decimal import ROUND_DOWN, Decimal
from enum import Enum


class Größe(Enum):
    KLEIN = Decimal("0.8")
    MITTEL = Decimal("1")
    GROSS = Decimal("1.25")


def preis(grundpreis, größe):
    """The price of a size, to ten cents."""
    return (grundpreis * größe.value).quantize(Decimal("0.1"), rounding=ROUND_DOWN).quantize(Decimal("0.01"))
