"""Prints docs/ecosystem.md from clients.toml, with the releases of the lock files (`make ecosystem`)."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_HEAD = """\
# Trainers, agents and clients

What runs on the service, and with what it is tried. Made by `make ecosystem` from `scripts/clients.toml`. Releases
under "in CI" are those of the lock files in `requirements/`; the test drives the real package in that release. What
stands under "by hand" was run so once, against the real package or its public source: no test holds it.

A reward that says nothing about the policy is `masked`; the last column says how it is kept from the trainer.

"""
_COLUMNS = ("client", "in CI", "test", "by hand", "works", "does not", "masked")
_EXAMPLES = """
## How to begin

In a checkout of this repository:

```sh
make setup images                                              # .venv, and the samples
.venv/bin/sandbox-server instances import examples/instances.jsonl
SANDBOX_DIALECT=tool_calls .venv/bin/sandbox-server serve &    # for policies that call tools; text needs no setting
python3 examples/scripted_policy.py &                          # an endpoint without a model: plays the samples' fixes
export SANDBOX_URL=http://127.0.0.1:5000 SCRIPTED_BASE_URL=http://127.0.0.1:8000/v1 SCRIPTED_API_KEY=none
```

Then the lines of a client, each in an environment of its own. tests/live/test_first_lines.py runs those that follow an
installation (but for `inspect eval`), in the releases of the table, and compares the output below them. What has none
is for your own program.
"""


@dataclass(frozen=True)
class Client:
    """One line of the table, and its lines to start by."""

    name: str
    works: str
    masked: str
    locks: Sequence[tuple[str, str]] = ()
    """Lock files and the package that each pins; what they pin is in CI."""
    test: str = ""
    """The file and the test's name, `file::test`; "" if none drives the real package."""
    by_hand: str = ""
    fails: str = ""
    start: str = ""
    """Lines of configuration, in Markdown; "": the page that the name links to has them."""


CLIENTS = [Client(**client) for client in tomllib.loads((ROOT / "scripts" / "clients.toml").read_text())["client"]]


def releases(client: Client) -> str:
    """The releases that the client's lock files pin, in their order."""
    pinned = []
    for lock, package in client.locks:
        found = re.search(rf"^{re.escape(package)}==(\S+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE)
        assert found, f"{lock} does not pin {package}"
        pinned.append(found[1])
    return ", ".join(pinned)


def markdown() -> str:
    """The document."""
    rows = [f"| {' | '.join(_COLUMNS)} |\n", f"|{'---|' * len(_COLUMNS)}\n"]
    for one in CLIENTS:
        test = f"`{one.test.removeprefix('tests/live/').removesuffix('::test_')}`" if one.test else ""
        cells = (one.name, releases(one), test, one.by_hand, one.works, one.fails, one.masked)
        rows.append(f"| {' | '.join(cells)} |\n")
    begins = [f"\n### {one.name}\n\n{one.start}\n" for one in CLIENTS if one.start]
    return _HEAD + "".join(rows) + _EXAMPLES + "".join(begins)


def without_test(tests: Mapping[str, str]) -> list[str]:
    """Clients whose releases are said to be in CI while no such test is in `tests` (a file's text by its path)."""
    named = {one.name: one.test.split("::") for one in CLIENTS if one.locks}
    return [name for name, (path, *test) in named.items() if f"def {test[0]}" not in tests.get(path, "")]


if __name__ == "__main__":
    print(markdown(), end="")
