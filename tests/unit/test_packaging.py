"""Contents of the installed package."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_that_is_no_module_is_packaged() -> None:
    """A checkout works; an image or a wheel fails at the first import."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    package = ROOT / "sandbox_server"
    packaged = {path for pattern in settings["sandbox_server"] for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files and not files - packaged
