from decimal import Decimal

import pytest

from tarif import Größe, carte, preis, texte


def test_the_cards():
    assert carte()["café glacé"] == Decimal("3.90")
    assert carte("hiver")["Glühwein"] == Decimal("4.50")


def test_the_middle_size_costs_the_price_itself():
    assert preis(Decimal("3.90"), Größe.MITTEL) == Decimal("3.90")


def test_french():
    assert texte("français", "café", Decimal("2.50")) == "café : 2.50 €"


def test_an_unknown_language():
    with pytest.raises(FileNotFoundError):
        texte("klingon", "raktajino", Decimal("1"))
