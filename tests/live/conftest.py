"""Fixtures: real servers over real HTTP, one shared, and separate ones for tests that kill theirs or set low limits."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import ROOT

from .e2b import Control
from .serving import CALLED, CATALOGUE, SCRIPTED, UNGRADED, UNREAD, Server, imported, serving, until


@pytest.fixture(scope="session")
def rows(sample_images: dict[str, str], once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The samples, and variants of some: without a grader, with a missing image, with tool calls, for code search.

    Three variants make tests cheaper: `serving.SCRIPTED` has a cheap grader, for tests that need some grader.
    `serving.UNGRADED` has none, for tests that need no verdict. `serving.UNREAD`, for tests that need no patch, also
    saves the container that reads the patch.

    A catalogue with these rows lies beside the file; servers start with a copy of it.
    """
    return once("rows", _make_rows) / "rows.jsonl"


def _make_rows(folder: Path) -> None:
    texts = (ROOT / "examples" / "instances.jsonl").read_text().splitlines()
    timespan = next(row for row in map(json.loads, texts) if row["instance_id"].startswith("samples__timespan"))
    absent = {**timespan, "instance_id": "samples__absent-1", "sandbox": {"images": ["sandbox-samples/absent:latest"]}}
    bare = {
        **timespan,
        "instance_id": "samples__bare-1",
        "sandbox": {"images": ["sandbox-samples/base:latest"], "workdir": "/opt"},
    }
    ledger = next(row for row in map(json.loads, texts) if row["instance_id"] == "samples__ledger-12")
    search = {**ledger, "instance_id": "samples__search-1", "dialect": "tool_calls"}
    ungraded = {
        **{name: ledger[name] for name in ("repo", "version", "base_commit", "problem_statement")},
        "instance_id": UNGRADED,
        "sandbox": {"images": [ledger["image"]], "workdir": ledger["workdir"]},
    }
    settled = "from ledger import Money; assert [part.minor for part in Money(5).allocate([1, 1])] == [3, 2]"
    scripted = {
        **ungraded,
        "instance_id": SCRIPTED,
        "grader": {"kind": "script", "command": f"python3 -c '{settled}'"},
        "gold_patch": ledger["patch"],
    }
    intervals = next(row for row in map(json.loads, texts) if row["instance_id"] == "samples__intervals-3")
    tests = 'import tests.test_intervals as own; [test() for name, test in vars(own).items() if name[:5] == "test_"]'
    called = {
        **intervals,
        "instance_id": CALLED,
        "grader": {"kind": "script", "command": f"python3 -c '{tests}'"},
    }
    unread = {**ungraded, "instance_id": UNREAD, "localization": {"truth": {"files": ["ledger/money.py"]}}}
    find = {
        **timespan,
        "instance_id": "samples__find-1",
        "localization": {
            "truth": {
                "files": ["timespan/reader.py", "timespan/writer.py"],
                "modules": ["timespan/reader.py:read"],
                "entities": ["timespan/reader.py:read"],
                "added_files": ["timespan/new.py"],
            }
        },
    }
    del find["grader"]
    locate = {**find, "instance_id": "samples__locate-1", "dialect": "tool_calls"}
    path = folder / "rows.jsonl"
    own = (absent, bare, search, scripted, called, ungraded, unread, find, locate)
    path.write_text("\n".join([*texts, *map(json.dumps, own)]) + "\n")
    # now: a first start prepares the instance's image, which may take longer than the time limits that some tests set
    (folder / "prepared").mkdir()
    server = Server(folder / "prepared", path, {})
    server.cli("images", "prepare", "samples__ledger-12")
    shutil.copy(imported(path), path.with_suffix(CATALOGUE))


@pytest.fixture(scope="package")  # not `session`: idle, it would take 1.2 % of a CPU during the worker's later files
def live(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A shared server, which no test may stop."""
    settings = {"command_timeout_s": 6, "allow_ungradable": 1, "max_patch_mb": 4}
    with serving(tmp_path_factory.mktemp("live"), rows, **settings) as server:
        yield server


@pytest.fixture
def serve(rows: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """serve(**settings): start a server for this test alone."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(serving(tmp_path, rows, **settings))


@pytest.fixture
def control(server: Server) -> Iterator[Control]:
    """E2B's control plane of the module's server. At the end its boxes are killed, and no container may be left."""
    control = Control(server)
    yield control
    control.kill(*control.ids())
    until(lambda: not server.containers(), 20, "no container left")
