"""A repository with one commit, as somebody would clone it."""

import difflib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

BASE = {
    "src/a.py": "class Foo:\n    attr = 1\n\n    def bar(self):\n        return 1\n\n\ndef free():\n    return 2\n",
    "src/old.py": "def gone():\n    return 3\n",
    "README.md": "one\n",
}


def git(folder: Path, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def patched(old: str, new: str, path: str = "src/a.py") -> str:
    """The diff that turns the one `old` in a file of BASE into `new`."""
    text = BASE[path]
    assert text.count(old) == 1, old
    lines = (text.splitlines(keepends=True), text.replace(old, new).splitlines(keepends=True))
    return f"diff --git a/{path} b/{path}\n" + "".join(difflib.unified_diff(*lines, f"a/{path}", f"b/{path}"))


@dataclass(frozen=True)
class Clones:
    folder: Path
    commit: str


@pytest.fixture(scope="session")
def clones(tmp_path_factory: pytest.TempPathFactory) -> Clones:
    """`acme/ledger` with a work tree, `acme/bare` and SWE-smith's `swesmith/acme__x.12345678` bare, at one commit."""
    folder = tmp_path_factory.mktemp("clones")
    work = folder / "acme__ledger"
    work.mkdir()
    git(work, "init", "-q")
    for name, text in BASE.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "base")
    git(folder, "clone", "-q", "--bare", str(work), str(folder / "acme" / "bare.git"))
    git(folder, "clone", "-q", "--bare", str(work), str(folder / "swesmith" / "acme__x.12345678"))
    return Clones(folder, git(work, "rev-parse", "HEAD").strip())
