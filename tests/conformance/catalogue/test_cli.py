"""The command line, as a process: forked with its imports done, but where the imports are what is tested."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live import forking

GOOD = {
    "instance_id": "own__one-1",
    "repo": "own/one",
    "version": "1",
    "sandbox": {"images": ["one:latest"]},
    "grader": {"kind": "script", "command": "true"},
}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables of a process with a data directory of the test's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOX_")}
    return {**kept, "SANDBOX_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Run `sandbox-server ARGUMENTS`."""

    def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return forking.run([*map(str, arguments)], environment | variables)

    return run


@pytest.fixture
def run_cold(environment: dict[str, str]) -> Run:
    """Run `sandbox-server ARGUMENTS` as a shell does, which costs 2 s of CPU for most of its commands."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sandbox_server.cli", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


def rows(path: Path, *values: object) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_import_list_show(run: Run, tmp_path: Path) -> None:
    """The way a data set gets in, and how a human looks at it."""
    file = rows(tmp_path / "a.jsonl", GOOD, {**GOOD, "instance_id": "own__two-2", "grader": None})
    imported = run("instances", "import", file)
    assert (imported.returncode, imported.stderr) == (0, "")
    assert imported.stdout == f"{file}: 2 new, 0 updated, 0 unchanged\n  1 ungradable: The row names no grader.\n"
    assert "0 new, 0 updated, 2 unchanged" in run("instances", "import", file).stdout
    listed = run("instances", "list").stdout.splitlines()
    assert [line.split() for line in listed] == [
        ["own__one-1", run("hash", "own__one-1").stdout.strip(), "script"],
        ["own__two-2", run("hash", "own__two-2").stdout.strip(), "ungradable"],
    ]
    shown = run("instances", "show", "own__one-1").stdout
    assert "workspace    /workspace/own__one__1.0\n" in shown
    assert json.loads(run("instances", "show", "own__one-1", "--json").stdout)["repo"] == "own/one"


def test_each_file_is_imported_whole_or_not_at_all(run: Run, tmp_path: Path) -> None:
    """The bad file leaves nothing, the one before it stays, the one after it is not tried."""
    one = rows(tmp_path / "1.jsonl", GOOD)
    bad = rows(tmp_path / "2.jsonl", {**GOOD, "instance_id": "x"}, {**GOOD, "instance_id": "y", "typo": 1})
    late = rows(tmp_path / "3.jsonl", {**GOOD, "instance_id": "z"})
    done = run("instances", "import", one, bad, late)
    assert done.returncode == 1
    assert done.stdout == f"{one}: 1 new, 0 updated, 0 unchanged\n"
    assert done.stderr.startswith(f"error: {bad}: line 2: typo: ") and done.stderr.count("\n") == 1
    assert run("instances", "list").stdout.split()[0::3] == ["own__one-1"]


@pytest.mark.parametrize(
    ("arguments", "variables", "why"),
    [
        (("instances", "show", "nope"), {}, "no instance 'nope'"),
        (("instances", "import", "/nope"), {}, "cannot read /nope: No such file"),
        (("instances", "list"), {"SANDBOX_DATABASE_URL": "mysql://x"}, "SANDBOX_DATABASE_URL: no support for mysql"),
        (("instances", "list"), {"SANDBOX_DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/x"}, "the database"),
        (("instances", "list"), {"SANDBOX_PORT": "x"}, "SANDBOX_PORT: "),
        (("instances", "list"), {"SANDBOX_ENV_FILE": "/nope"}, "SANDBOX_ENV_FILE: /nope cannot be read"),
        (
            ("serve",),
            {"SANDBOX_API_KEYS": "a-long-key", "SANDBOX_VIEW_KEYS": "a-long-key"},
            "a key of SANDBOX_VIEW_KEYS",
        ),
    ],
)
def test_errors_are_one_line(run: Run, arguments: tuple[str, ...], variables: dict[str, str], why: str) -> None:
    """Exit code 1 for scripts, one sentence for humans, no traceback, no password."""
    done = run(*arguments, **variables)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {why}") and done.stderr.count("\n") == 1
    assert "secret" not in done.stderr


def test_hash_and_help_load_nothing_heavy(run_cold: Run) -> None:
    """They are typed in loops; SQLAlchemy and alembic alone would take half a second."""
    assert run_cold("hash", "django__django-11099").stdout == "1922554310125897704\n"
    assert "instances" in run_cold("--help").stdout
    program = "import sys, sandbox_server.cli.hash; print({'sqlalchemy', 'alembic', 'pyarrow'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"
    )
    best = min(_seconds(run_cold) for _ in range(3))
    assert best < 1.0  # 0.2 s on a free core


def _seconds(run: Run) -> float:
    """CPU time, for the time on the clock depends on what else runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run("hash", "a")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
