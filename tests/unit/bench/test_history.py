"""The repository with a long history that the benchmark prepares: git itself reads its stream."""

import subprocess
from pathlib import Path

from bench.history import stream


def git(repository: Path, *words: str, stdin: str | None = None) -> str:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    command = ["git", *who, *words]
    done = subprocess.run(command, cwd=repository, input=stdin, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_git_gets_the_commits_the_tags_and_what_comes_later(tmp_path: Path) -> None:
    """A shorter history than announced would be prepared faster, and the figure would praise it."""
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "begin")
    head = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "fast-import", "--quiet", "--force", stdin="".join(stream(head, 100, 7, 9)))
    git(tmp_path, "reset", "-q", "--hard", "refs/heads/main~7")
    assert git(tmp_path, "rev-list", "--count", "HEAD") == "101"
    assert git(tmp_path, "log", "-1", "--format=%s") == "commit 100"
    assert len(git(tmp_path, "tag", "--merged", "HEAD").split()) == 9
    assert git(tmp_path, "tag", "--no-merged", "HEAD") == "later"
    assert git(tmp_path, "rev-list", "--count", "HEAD..later") == "7"
    assert (tmp_path / "filler" / "20" / "2.py").read_text() == "VALUE = 100\n"
    assert git(tmp_path, "status", "--porcelain") == ""
