"""Which data sets import, are graded and become tasks of code search: the table of the documentation."""

from pathlib import Path

from tests.conftest import ROOT

from .format_rows import table


def test_the_documented_table(tmp_path: Path, swebench4_dir: Path) -> None:
    """The documentation promises what an import refuses; put what this prints there."""
    made = table(tmp_path, swebench4_dir)
    assert made in (ROOT / "docs" / "instances.md").read_text(), made
