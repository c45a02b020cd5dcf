"""Tables for a terminal."""


class Table:
    """Rows of cells under a head."""

    def __init__(self, *head: str) -> None:
        self.rows = [head]

    def add(self, *cells: object) -> None:
        """One row."""
        self.rows.append(tuple(str(cell) for cell in cells))

    def widths(self) -> list[int]:
        """Of the columns."""
        return [max(len(cell.encode()) for cell in column) for column in zip(*self.rows)]

    def render(self) -> str:
        """All rows, in columns."""
        widths = self.widths()
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in self.rows]
        return "\n".join(line.rstrip() for line in lines)
