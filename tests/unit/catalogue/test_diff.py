"""The header parser against what real git writes, and against noise."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_server.catalogue import diff
from sandbox_server.catalogue.diff import created_paths, file_sections, touched_paths

_GIT_ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(repo: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=repo, env=_GIT_ENV, check=True, capture_output=True).stdout


def repository(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    put(folder, files)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "--allow-empty", "-m", "base")
    return folder


def put(repo: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def staged(repo: Path, *options: str) -> bytes:
    git(repo, "add", "-A", "-f")
    return git(repo, "-c", "core.quotePath=true", "diff", "--cached", "--binary", *options)


def test_every_kind_of_change_is_seen(tmp_path: Path) -> None:
    """A kind of change whose path is not read is a hole in the guard."""
    repo = repository(
        tmp_path / "r",
        {
            "edited.py": b"a\nb\n",
            "gone.py": b"x\n",
            "moved old.py": b"one\ntwo\nthree\nfour\n",
            "mode.sh": b"#!/bin/sh\n",
            "blob.bin": b"\0\1\2",
        },
    )
    (repo / "edited.py").write_bytes(b"a\n-- c\n++ d\n")
    (repo / "gone.py").unlink()
    (repo / "moved old.py").rename(repo / "moved new.py")
    (repo / "mode.sh").chmod(0o755)
    put(
        repo,
        {
            "blob.bin": b"\0\1\2\3",
            "new.bin": b"\0\xff",
            "dir with space/ü ñ.py": b"x\n",
            'quo"te\t.py': b"x\n",
            "empty file": b"",
            "no newline": b"x",
        },
    )
    (repo / "link").symlink_to("edited.py")
    patch = staged(repo)
    assert touched_paths(patch) == {
        "edited.py",
        "gone.py",
        "moved old.py",
        "moved new.py",
        "mode.sh",
        "blob.bin",
        "new.bin",
        "dir with space/ü ñ.py",
        'quo"te\t.py',
        "empty file",
        "no newline",
        "link",
    }
    assert created_paths(patch) == {
        "moved new.py",
        "new.bin",
        "dir with space/ü ñ.py",
        'quo"te\t.py',
        "empty file",
        "no newline",
        "link",
    }
    assert b"".join(section.text for section in file_sections(patch)) == patch


def test_content_that_looks_like_headers_is_content(tmp_path: Path) -> None:
    """A fix must not lose a file because its text quotes a diff."""
    old = b"keep\n-- a/conftest.py\n++ b/conftest.py\n"
    new = b"keep\n++ b/pytest.ini\n-- a/pytest.ini\ndiff --git a/tox.ini b/tox.ini\n@@ -1 +1 @@\n"
    repo = repository(tmp_path / "r", {"notes.txt": old})
    put(repo, {"notes.txt": new})
    assert touched_paths(staged(repo)) == {"notes.txt"}


@pytest.mark.parametrize("options", [("--no-prefix",), ("--src-prefix=i/", "--dst-prefix=w/"), ("-U0",), ("-M", "-C")])
def test_other_ways_of_writing_a_diff(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Paths of a diff in another dress are read as -p1 reads them."""
    repo = repository(tmp_path / "r", {"pkg/mod.py": b"a\n" * 9})
    put(repo, {"pkg/mod.py": b"a\n" * 8 + b"b\n", "pkg/conftest.py": b"import os\n"})
    names = touched_paths(staged(repo, *options))
    assert {name.rpartition("/")[2] for name in names} == {"mod.py", "conftest.py"}


def test_a_plain_unified_diff_has_a_section_per_file() -> None:
    """`patch` takes diffs without `diff --git` lines, so the guard must read them."""
    first = b"--- a/x.py\t2020-01-01\n+++ b/x.py\t2020-01-02\n@@ -1 +1 @@\n-a\n+b\n"
    patch = first + b"--- /dev/null\n+++ b/conftest.py\n@@ -0,0 +1 @@\n+c\n"
    sections = file_sections(patch)
    assert [section.paths for section in sections] == [{"x.py"}, {"conftest.py"}]
    assert sections[1].created == {"conftest.py"}


def test_headers_that_disagree_all_count() -> None:
    """git refuses such a section, `patch` follows one of its lines: none may be overlooked."""
    patch = b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/./sub//conftest.py\n@@ -1 +1 @@\n-a\n+b\n"
    assert "sub/conftest.py" in touched_paths(patch)


def test_lying_hunk_counts_hide_nothing() -> None:
    """A hunk that claims a million lines must not swallow the next file."""
    patch = (
        b"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,1000000 +1,1000000 @@\n a\n"
        b"diff --git a/conftest.py b/conftest.py\nnew file mode 100644\n"
    )
    assert created_paths(patch) == {"conftest.py"}


_PART = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=12).filter(
    lambda part: part not in {".", ".."} and part.lower() != ".git" and len(part.encode()) < 60
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(st.lists(_PART, min_size=1, max_size=3).map("/".join), st.binary(max_size=60), max_size=4),
    number=st.integers(0, 1 << 60),
)
def test_names_agree_with_git(tmp_path: Path, files: dict[str, bytes], number: int) -> None:
    """Whatever a file is called, the parser names it as `git diff --name-only -z` does."""
    repo = repository(tmp_path / f"{number}-{len(list(tmp_path.iterdir()))}", {})
    try:
        put(repo, files)
    except (NotADirectoryError, FileExistsError, IsADirectoryError):
        return  # one name is a folder of another
    patch = staged(repo, "--no-renames")
    named = git(repo, "diff", "--cached", "--no-renames", "--name-only", "-z").decode("utf-8", "surrogateescape")
    assert touched_paths(patch) == {name for name in named.split("\0") if name}


_NOISE = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"diff --git ",
            b"--- ",
            b"+++ ",
            b'"a/\\3',
            b"rename to ",
            b"@@ -1,3 +1,9 @@",
            b"new file mode 100644",
            b"\n",
            b"\n",
            b" a/b ",
            b'"',
            b"/dev/null",
        ]
    ),
)


@given(st.lists(_NOISE, max_size=40).map(b"".join))
def test_no_input_raises_or_is_lost(patch: bytes) -> None:
    """A patch that crashes the guard would be a patch without a verdict."""
    sections = file_sections(patch)
    assert not sections or b"".join(section.text for section in sections) == patch


_BODY = st.sampled_from(
    [
        b" a",
        b"+a",
        b"-a",
        b"",
        b"\r",
        b"--- a/x",
        b"+++ b/x",
        b"\\ No newline at end of file",
        b"diff --git a/y b/y",
        b"x",
    ]
)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.lists(_BODY, max_size=6), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_a_hunk_is_skipped_as_its_lines_say(hunks: list[tuple[int, int, list[bytes], bool]], ends: bool) -> None:
    """A header that is taken for a hunk's content, or the reverse, is a file that the guard does not see."""
    lines = [b"diff --git a/f b/f", b"--- a/f", b"+++ b/f"]
    for old, new, body, counted in hunks:
        if counted:
            old, new = (sum(line[:1] not in (sign, b"\\") for line in body) for sign in (b"+", b"-"))
        lines += [b"@@ -1,%d +1,%d @@" % (old, new), *body]
    patch = b"\n".join(lines) + b"\n" * ends
    whole = file_sections(patch)
    with pytest.MonkeyPatch.context() as each_line:
        each_line.setattr(diff._Hunk, "skip", lambda self, patch, at: at)
        assert diff._sections(patch, diff.without_prefix) == whole
