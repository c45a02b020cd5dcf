"""Reading the card."""

import csv
from decimal import Decimal
from pathlib import Path

DONNÉES = Path(__file__).parent.parent / "données"


def carte(saison="été"):
    """`{drink: price}` of a season's card."""
    with (DONNÉES / f"carte {saison}.csv").open(encoding="utf-8", newline="") as lines:
        return {row["boisson"]: Decimal(row["prix"].replace(",", ".")) for row in csv.DictReader(lines, delimiter=";")}
