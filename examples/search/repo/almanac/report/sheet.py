"""Reports as comma-separated values."""

from almanac.report.table import Table


def quoted(cell: str) -> str:
    """The cell as a sheet takes it."""
    if any(character in cell for character in ',"\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def write(table: Table, path: str) -> None:
    """The table as a file."""
    with open(path, "w", encoding="ascii") as file:
        for row in table.rows:
            file.write(",".join(quoted(cell) for cell in row) + "\n")
