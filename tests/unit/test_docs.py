"""The documents agree with the code on errors, verdicts, settings, requests and commands."""

import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_server import cli, errors
from sandbox_server.app import create_app
from sandbox_server.cli import rewards
from sandbox_server.cli.settings import markdown
from sandbox_server.settings import Settings
from sandbox_server.verdicts import VerdictName

DOCS = Path(__file__).parents[2] / "docs"
ROOT = DOCS.parent
PAGES = [
    *DOCS.rglob("*.md"),
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "client/README.md")),
]


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


def requests() -> Iterator[tuple[str, str, str]]:
    """(method, path with {} for each parameter, query) of each request under /v1 that a page names."""
    for page in PAGES:
        for others, method, path, query in re.findall(
            r"((?:`[A-Z]+`, )*)`(GET|HEAD|POST|PUT|DELETE) (/v1/[^`? ]*)(?:\?([^` ]*))?[^`]*`", page.read_text()
        ):
            for one in (*re.findall(r"[A-Z]+", others), method):
                yield one, re.sub(r"\{[^}]*\}?|(?<=/)[A-Z]+(?=/|$)", "{}", path), query


def test_every_request_in_the_documents_is_served(tmp_path: Path) -> None:
    """A reader would send a request, or a parameter, that the server does not know, or miss one."""
    app = create_app(Settings(data_dir=tmp_path), lambda _: pytest.fail("not to be opened"))
    served = {
        (method.upper(), re.sub(r"\{[^}]*\}", "{}", path)): {given["name"] for given in operation.get("parameters", ())}
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
    }
    named = set(requests())
    unknown = {(method, path) for method, path, _ in named} - set(served)
    assert unknown == set()
    wrong = [
        f"{method} {path}: {name}"
        for method, path, query in named
        for name in re.findall(r"(\w+)=", query)
        if name not in served[method, path]
    ]
    assert wrong == []
    ours = {(method, path) for method, path in served if path.startswith("/v1/")}
    assert ours - {(method, path) for method, path, _ in named} == set()


def test_every_variable_in_the_documents_is_read() -> None:
    """A reader would set a variable that has no effect, for instance after it was renamed."""
    folders = ("sandbox_server", "client", "deploy", "scripts", "tests")
    sources = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix != ".md" and path.is_file()
    ]
    known = {f"SANDBOX_{name.upper()}" for name in Settings.model_fields}
    for path in (*sources, ROOT / "docker-compose.yml"):
        known |= set(re.findall(r"SANDBOX_[A-Z0-9_]*[A-Z0-9]", path.read_text(errors="replace")))
    known |= {f"SANDBOX_TEST_{name}" for name in ("INSTANCE", "SOLVE")}  # client/tests/conftest.py puts them together
    for page in PAGES:
        named = set(re.findall(r"(?<![A-Z_])SANDBOX_[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_])", page.read_text()))
        assert named - known == set(), page.name


def test_the_rooms_are_those_of_the_code() -> None:
    """Somebody looks for a module that was renamed, or at layers that the contract does not have."""
    page = (DOCS / "architecture.md").read_text().split("## Rooms")[1].split("## A rollout")[0]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"] == "layers"]
    assert re.findall(r"^(\w+(?: \| \w+)*)", page.split("```")[1].removeprefix("text\n"), re.MULTILINE) == layers
    room = ""
    for line in re.findall(r"^\| (?:`(\w+)/?(?:\.py)?`)? ?\|(.*)", page, re.MULTILINE):
        room = line[0] or room
        for name in re.findall(r"`([\w/]+\.py)`", line[1]):
            places = [ROOT / "sandbox_server" / room / name, ROOT / "sandbox_server" / name]
            assert any(place.is_file() for place in places), f"{room}: {name}"


def test_every_command_in_the_documents_exists() -> None:
    """A reader would type a command that is gone."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        code = "\n".join(re.findall(r"`[^`\n]+`|^```.*?^```", page.read_text(), re.MULTILINE | re.DOTALL))
        assert set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", code)) <= targets, page.name
        assert set(re.findall(r"sandbox-server ([a-z][a-z-]*)", code)) <= set(cli.VERBS), page.name
