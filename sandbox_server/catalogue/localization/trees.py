"""Read base trees from clones on this host: files of a commit, without checkout or network."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

_TIMEOUT_S = 120.0
"""Limit on reading one patch's files; normally milliseconds, but the disk may be slow or the clone huge."""
_NAME = re.compile(r"[\w.+-]+(/[\w.+-]+)?")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}|HEAD")
_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    # another user may own the clones; git accepts safe.directory only from outside the repository
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",  # a partial clone would fetch missing objects
    "LC_ALL": "C",
}


class NoTree(Exception):
    """The tree is not available; the message says why."""


class Trees(Protocol):
    """A source of base trees."""

    def files(self, repo: str, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
        """Path -> content for those `paths` that exist in the commit; `commit` "" is the repository's HEAD.

        Raises:
            NoTree: there is no such repository or commit here.

        """
        ...


class CloneFolder:
    """A folder of clones, bare or with a work tree, named `owner__repo` or `owner/repo`, with or without `.git`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def files(self, repo: str, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
        """See `Trees`."""
        return commit_files(self._clone(repo), repo, commit or "HEAD", paths)

    def _clone(self, repo: str) -> Path:
        if not _NAME.fullmatch(repo) or ".." in repo.split("/"):
            raise NoTree(f"{repo!r} is not a name of a repository")
        for name in (repo.replace("/", "__"), repo):
            for place in (self._folder / name, self._folder / f"{name}.git"):
                git_dir = place / ".git" if (place / ".git").exists() else place
                if (git_dir / "HEAD").is_file() or git_dir.is_file():
                    return place
        raise NoTree(f"no clone of {repo} among the repositories: `git clone` it to {repo.replace('/', '__')} there")


def commit_files(clone: Path, repo: str, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Path -> content for those `paths` that exist in `commit` of the repository at `clone`. `repo`: name for errors.

    Raises:
        NoTree: the commit is not there, or git cannot read it.

    """
    if not _COMMIT.fullmatch(commit):
        raise NoTree(f"{commit!r} is no commit id")
    # git reads one name per line
    asked = [path for path in dict.fromkeys(paths) if "\n" not in path]
    names = [f"{commit}^{{commit}}", *(f"{commit}:{path}" for path in asked)]
    answers = _contents(clone, names)
    if answers[0] is None:
        raise NoTree(f"the clone of {repo} does not have the commit {commit}; fetch it there")
    found = zip(asked, answers[1:], strict=True)
    return {path: content for path, content in found if content is not None}


def _contents(clone: Path, names: Sequence[str]) -> list[bytes | None]:
    """The content of each named object; None: missing, or neither a file nor a commit."""
    command = ["git", "-C", str(clone), "cat-file", "--batch"]
    asked = "".join(name + "\n" for name in names).encode("utf-8", "surrogateescape")
    try:
        done = subprocess.run(
            command, input=asked, env={**os.environ, **_ENV}, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise NoTree("git is not installed, but is needed to read trees") from None
    except subprocess.TimeoutExpired:
        raise NoTree(f"git took more than {_TIMEOUT_S:.0f} s to read from the clone {clone.name}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").replace(str(clone), clone.name).strip()  # hide host paths
        raise NoTree(f"git cannot read the clone {clone.name}: {said[-300:]}")
    return _answers(done.stdout, len(names))


def _answers(said: bytes, count: int) -> list[bytes | None]:
    answers: list[bytes | None] = []
    at = 0
    for _ in range(count):
        end = said.index(b"\n", at)
        words = said[at:end].rsplit(b" ", 2)
        at = end + 1
        if words[-1] == b"missing" or not words[-1].isdigit():
            answers.append(None)
            continue
        size = int(words[-1])
        answers.append(said[at : at + size] if words[1] in (b"blob", b"commit") else None)
        at += size + 1
    return answers
