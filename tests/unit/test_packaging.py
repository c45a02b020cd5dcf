"""Contents and version of the installed packages."""

import re
import sys
import tomllib
from datetime import date
from pathlib import Path

import pytest
import sandbox_client
import yaml

from sandbox_server import __version__, cli

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_that_is_no_module_is_packaged() -> None:
    """A checkout works; an image or a wheel fails at the first import."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    package = ROOT / "sandbox_server"
    packaged = {path for pattern in settings["sandbox_server"] for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files and not files - packaged


def test_one_version_everywhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A release is announced under a version that server, client or image do not have."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)", changes, re.MULTILINE)
    assert headings[0] == "Unreleased"
    released = [heading.split(" - ") for heading in headings[1:]]
    assert released[0][0] == __version__ == sandbox_client.__version__
    numbers = [tuple(map(int, version.split("."))) for version, _ in released]
    days = [date.fromisoformat(day) for _, day in released]
    assert numbers == sorted(numbers, reverse=True) and days == sorted(days, reverse=True)
    groups = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)", changes, re.MULTILINE)) <= groups
    overlay = yaml.safe_load((ROOT / "deploy/kubernetes/overlays/example/kustomization.yaml").read_text())
    assert {image["newTag"] for image in overlay["images"] if image["name"] == "sandbox-server"} == {__version__}
    monkeypatch.setattr(sys, "argv", ["sandbox-server", "--version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().out) == (0, f"sandbox-server {__version__}\n")
