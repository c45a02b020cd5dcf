"""Printing a line of the card."""

from pathlib import Path

MODÈLES = Path(__file__).parent.parent / "modèles de texte"


def texte(langue, boisson, prix):
    """A line from the language's template."""
    modèle = (MODÈLES / f"ligne ({langue}).txt").read_text(encoding="utf-8").rstrip("\n")
    return modèle.format(boisson=boisson, prix=prix)
