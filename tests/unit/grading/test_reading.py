"""What git reads in a patch, against what the guard reads; and what GNU patch gets to see."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_server.catalogue.diff import touched_paths
from sandbox_server.catalogue.git_process import GitFailed
from sandbox_server.grading.reading import GitReading, plain

_ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
_DIFF = [
    "diff",
    "--cached",
    "--binary",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
]


def git(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(["git", *words], cwd=folder, env=_ENV, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def reading(tmp_path: Path) -> GitReading:
    return GitReading(tmp_path / "git")


_part = st.one_of(
    st.sampled_from(["conftest.py", "a b", "b/", '"q"', "back\\slash", "tab\t", "new\nline", "-d", "ü", "x => y"]),
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8),
)
_name = st.lists(_part.map(lambda part: part.strip("/")), min_size=1, max_size=3).map("/".join)
_body = st.one_of(
    st.binary(max_size=40),
    st.lists(
        st.sampled_from(["x", "--- a/b", "+++ b/conftest.py", "diff --git a/x b/y", "@@ -1 +1 @@", "rename to z", ""]),
        max_size=6,
    ).map(lambda lines: "\n".join(lines).encode()),
)
_tree = st.dictionaries(_name, st.tuples(st.sampled_from(["100644", "100755", "120000"]), _body), max_size=4)


def _write(folder: Path, tree: dict[str, tuple[str, bytes]]) -> None:
    git(folder, "read-tree", "--empty")
    names = [
        name for name in tree if not any(part in ("", ".", "..") or ".git" in part.lower() for part in name.split("/"))
    ]
    for name in names:
        if any(other.startswith(name + "/") for other in names):
            continue  # a file cannot be a folder too
        mode, body = tree[name]
        blob = git(folder, "hash-object", "-w", "--stdin", stdin=body).strip().decode()
        entry = f"{mode} {blob}\t".encode() + name.encode() + b"\0"
        git(folder, "update-index", "-z", "--index-info", stdin=entry)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=_tree, after=_tree)
async def test_our_own_captures_always_pass(
    tmp_path_factory: pytest.TempPathFactory, reading: GitReading, before: dict, after: dict
) -> None:
    """An honest patch is refused for an odd name: a right fix is worth nothing."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q")
    _write(folder, before)
    base = git(folder, "write-tree").decode().strip()
    _write(folder, {**after, **dict(list(before.items())[:1])})
    patch = git(folder, *_DIFF, base)
    assert not patch or await reading.misread(patch) == ""
    shutil.rmtree(folder)


_READ_OTHERWISE = [
    b"diff --git a/x b/y\nsimilarity index 100%\nrename old x\nrename new conftest.py\n",
    b"--- /dev/null\n+++ new\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ tests/pytest.py\n@@ -0,0 +1 @@\n+x\n",
]


@pytest.mark.parametrize("patch", _READ_OTHERWISE)
async def test_what_git_reads_otherwise_is_told(reading: GitReading, patch: bytes) -> None:
    """The guard looks at one file and git writes another."""
    assert "git reads other files" in await reading.misread(patch)


@pytest.mark.parametrize("data", ["data", "there/../data", "link"])
async def test_a_data_folder_within_a_repository_hides_nothing(tmp_path: Path, data: str) -> None:
    """Below a repository, git passes over the files of a patch that lie elsewhere in it."""
    git(tmp_path, "init", "-q")
    for folder in ("data", "there"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link").symlink_to("data")
    reading = GitReading(tmp_path / data / "git")
    for patch in _READ_OTHERWISE:
        assert "git reads other files" in await reading.misread(patch)


async def test_what_git_does_not_read_is_left_to_the_apply_commands(reading: GitReading) -> None:
    """A malformed patch is `patch_failed` because no command applies it, not because we refuse it."""
    assert await reading.misread(b"no patch at all") == ""
    assert await reading.misread(b"--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n-a\n") == ""


_FUZZY = b"--- a/x\n+++ b/x\n@@ -2,3 +2,3 @@\n other\n-b\n+B\n c\n"
HIDDEN = {
    "a context diff": b"*** /dev/null\n--- conftest.py\n***************\n*** 0 ****\n--- 1 ----\n+ import pytest\n",
    "an Index line": b"Index: conftest.py\n@@ -0,0 +1 @@\n+import pytest\n",
    "an ed script": b"Index: conftest.py\n0a\nimport pytest\n.\n",
    "an indented diff": b"  --- /dev/null\n  +++ b/conftest.py\n  @@ -0,0 +1 @@\n  +import pytest\n",
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("first", [True, False])
def test_gnu_patch_sees_no_more_than_the_guard(tmp_path: Path, name: str, first: bool) -> None:
    """The last tier takes forms that nothing else reads: a conftest.py comes in with `runner_files=[]`."""
    (tmp_path / "x").write_text("a\nb\nc\n")
    text = HIDDEN[name] + _FUZZY if first else _FUZZY + HIDDEN[name]
    given = tmp_path / "given.patch"
    given.write_bytes(plain(text))
    assert touched_paths(plain(text)) == {"x"}
    if shutil.which("patch") is None:
        pytest.skip("GNU patch is not here")
    command = ["patch", "--batch", "--forward", "--fuzz=5", "-p1", "-i", str(given)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "x").read_text() == "a\nB\nc\n"
    assert not (tmp_path / "conftest.py").exists()


def test_gnu_patch_gets_no_link() -> None:
    """It would write through one that it has just made, into `.git` for example, where git refuses the whole patch."""
    link = b"diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+.git\n\\ No newline\n"
    hook = b"diff --git a/x/a b/x/a\nnew file mode 100755\n--- /dev/null\n+++ b/x/a\n@@ -0,0 +1 @@\n+a\n"
    assert plain(hook) == hook and plain(link + hook) == b""


@pytest.mark.parametrize("path", [b"b//etc/x", b"b/../../x", b"b/.."])
def test_gnu_patch_gets_no_path_outside(path: bytes) -> None:
    """Some releases of it follow such a name."""
    assert plain(b"--- /dev/null\n+++ %b\n@@ -0,0 +1 @@\n+a\n" % path) == b""


async def test_a_patch_that_git_cannot_read_in_time_is_refused(
    reading: GitReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be graded although nobody knows which files it touches."""

    async def late(*_: object, **__: object) -> bytes:
        raise GitFailed("not done within 60 s", ended_by_us=True)

    monkeypatch.setattr("sandbox_server.grading.reading.run_git", late)
    assert await reading.misread(b"x") == "git cannot read it: not done within 60 s"


@settings(max_examples=200)
@given(st.lists(st.sampled_from([*_FUZZY.splitlines(keepends=True), *HIDDEN.values(), b"\\ No newline\n"])))
def test_plain_is_stable(lines: list[bytes]) -> None:
    """What is written again must be read as the same files."""
    once = plain(b"".join(lines))
    assert plain(once) == once
    assert touched_paths(once) <= touched_paths(b"".join(lines))
