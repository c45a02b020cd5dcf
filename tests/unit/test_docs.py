"""The documents agree with the code on errors, verdicts and settings."""

import re
import runpy
from pathlib import Path

from sandbox_server import errors
from sandbox_server.cli import rewards
from sandbox_server.cli.settings import markdown
from sandbox_server.records import VerdictName
from sandbox_server.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


def error_rows() -> list[str]:
    """One table row per error that can be on the wire, in the order of errors.py."""
    found = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.ServiceError)]
    rows = []
    for c in found:
        retryable, what = "yes" if c.retryable else "no", c.__doc__.splitlines()[0].rstrip(".")
        rows.append(f"| `{c.code}` | {c.http_status} | {retryable} | {what} |")
    return rows


def test_every_error_is_in_the_api_document() -> None:
    """A client would get an undocumented code."""
    table = (DOCS / "api.md").read_text().split("## Errors")[1]
    assert re.findall(r"^\| `.*$", table, re.MULTILINE) == error_rows()


def test_every_error_is_in_the_tree() -> None:
    """People read the tree at the top of errors.py."""
    named = set(re.findall(r"[├└]── (\w+)", errors.__doc__))
    classes = {c.__name__ for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.ServiceError)}
    assert named == classes - {"ServiceError"}


def test_every_verdict_is_in_the_api_document() -> None:
    """A trainer would get a verdict without knowing whether to mask it."""
    table = (DOCS / "api.md").read_text().split("| verdict | when | mask |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [name.value for name in VerdictName]


def test_the_settings_document_is_fresh() -> None:
    """Run `sandbox-server settings --markdown > docs/settings.md` when this fails."""
    assert (DOCS / "settings.md").read_text() == markdown()


def test_the_rewards_document_is_fresh() -> None:
    """Run `sandbox-server rewards --markdown > docs/rewards.md` when this fails."""
    assert (DOCS / "rewards.md").read_text() == rewards.markdown()


def test_the_metrics_document_is_fresh() -> None:
    """Run `make metrics` when this fails."""
    made = runpy.run_path(str(DOCS.parent / "scripts" / "metrics.py"))["markdown"]()
    assert (DOCS / "metrics.md").read_text() == made


def test_the_ecosystem_document_is_fresh() -> None:
    """Run `make ecosystem` when this fails: a release in a lock file, or a line of the table, is another."""
    made = runpy.run_path(str(DOCS.parent / "scripts" / "ecosystem.py"))
    assert (DOCS / "ecosystem.md").read_text() == made["markdown"]()
    tests = {str(path.relative_to(DOCS.parent)): path.read_text() for path in DOCS.parent.glob("tests/live/test_*.py")}
    assert made["without_test"](tests) == []


def test_every_setting_is_in_the_settings_document() -> None:
    """The generator would miss a field outside all groups of the class."""
    named = re.findall(r"^\| `SANDBOX_(\w+)`", markdown(), re.MULTILINE)
    assert sorted(named) == sorted(name.upper() for name in Settings.model_fields)
