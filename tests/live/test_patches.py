"""A session's diff, applied to the clean task image, gives the agent's tree."""

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from .serving import UNGRADED, Server, bash, docker

TREE = """
import hashlib, json, os
tree = {}
for folder, folders, names in os.walk(b"."):
    folders[:] = [name for name in folders if name != b".git"]
    for name in [*names, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]:
        path = os.path.join(folder, name)
        if path.endswith(b".pyc") or path == b"./.git":
            continue
        facts = os.lstat(path)
        if os.path.islink(path):
            tree[repr(path)] = ["link", repr(os.readlink(path))]
        elif os.path.isfile(path):
            with open(path, "rb") as file:
                tree[repr(path)] = [bool(facts.st_mode & 0o100), hashlib.sha256(file.read()).hexdigest()]
print(json.dumps(tree))
"""
IMAGE = "sandbox-samples/ledger:latest"

_ME = "git config user.email a@b; git config user.name a"
DEEDS = {
    "nothing": "true",
    "new": "mkdir -p a/b; echo x > a/b/new.txt; printf 'no newline' > bare; : > empty",
    "binary": r"head -c 100000 /dev/urandom > blob.bin; printf 'a\0b' > nul",
    "renamed and removed": "git mv ledger/split.py ledger/shares.py; rm tests/test_money.py; mv README.md READ",
    "modes and links": """
        chmod +x ledger/money.py; ln -s money.py ledger/link; ln -s /nowhere dangling; rm README.md; ln -s x README.md
    """,
    "a directory for a file": "rm README.md; mkdir README.md; echo x > README.md/x",
    "staged": "echo x > staged; git add staged; echo y >> ledger/money.py; git add -A; echo z >> staged",
    "committed": f"""
        {_ME}; echo x > c; git add c; git commit -qm c
        git checkout -qb other; echo y > d; git add d; git commit -qm d; echo z > e
    """,
    "stashed and reset": f"{_ME}; echo x >> README.md; git stash -q; echo y > kept; git reset -q --hard",
    "orphan branch": f"{_ME}; git checkout -q --orphan o; git rm -rqf tests; git commit -qm o",
    "configuration": """
        echo x > new.txt; echo y >> README.md; chmod +x ledger/money.py
        echo '*.md filter=f diff=d' > .git/info/attributes
        git config filter.f.clean 'echo filtered'; git config filter.f.smudge 'echo no'
        git config diff.external 'echo external'; git config diff.d.textconv 'echo t'
        git config core.hooksPath /tmp/h; mkdir -p /tmp/h
        git config core.excludesFile /tmp/ex; echo '*' > /tmp/ex
        git config core.attributesFile /tmp/at; echo '* -diff' > /tmp/at
        git config core.autocrlf true; git config core.fileMode false; git config core.worktree /tmp
        git config core.fsmonitor 'touch /tmp/fsmonitor-ran; false'
    """,
    "hidden in the index": """
        git update-index --assume-unchanged README.md; git update-index --skip-worktree ledger/money.py
        echo a >> README.md; echo b >> ledger/money.py
    """,
    "broken index and HEAD": "echo a >> README.md; echo junk > .git/index; echo junk > .git/HEAD",
    "removed .git": "echo a >> README.md; echo n > n; rm -rf .git",
    "a new .git": f"echo a >> README.md; rm -rf .git; git init -q; {_ME}; git add -A; git commit -qm all",
    "a file for .git": "echo a >> README.md; rm -rf .git; echo 'gitdir: /nowhere' > .git",
    "attributes and line ends": r"""
        printf '*.txt text eol=crlf\n*.md filter=lfs diff=x -text\n*.py ident\n' > .gitattributes
        printf 'a\r\nb\n' > mixed.txt; printf 'x\n' > unix.txt; echo m >> README.md; echo '# $Id$' >> ledger/money.py
    """,
    "names": r"""
        for name in 'with space' $'new\nline' $'tab\t' '"quote"' "it's" 'ü-ñ-日本' $'\xff\xfe' 'back\slash' '*' '-d'; do
          printf x > "./$name"
        done
        mkdir 'd d'; printf x > 'd d/ü'; printf x > ':(top)magic'
    """,
    "a repository without commits": "echo a >> README.md; mkdir sub; echo x > sub/f; git init -q sub",
    "a repository with commits": f"""
        echo a >> README.md; mkdir sub; cd sub; git init -q; {_ME}; echo x > f; git add f; git commit -qm f; echo y > g
    """,
    "special files": "echo a >> README.md; mkfifo fifo; rm ledger/money.py; mkfifo ledger/money.py; chmod 0 README.md",
    "same size and time": """
        touch -r README.md /tmp/t; tr a-y b-z < README.md > /tmp/r; cat /tmp/r > README.md; touch -r /tmp/t README.md
    """,
    "another capture's remains": "echo a >> README.md; touch /var/lib/sandbox/git/capture.index.lock",
    "tracked though ignored": f"""
        {_ME}; printf '*\\n' > .gitignore; mkdir new; echo x > new/x; echo y > new/y; echo a >> README.md
        git add -f new/x; git commit -qm x; git add -f new/y .gitignore
    """,
    "a link to a directory": "mkdir sub; echo x > sub/f; ln -s sub other",
}


@pytest.fixture(scope="module")
def clean_tree(sample_images: dict[str, str]) -> Iterator[Callable[[bytes], dict[str, list[object]]]]:
    """clean_tree(patch): the tree of the task image after applying `patch`, to a new copy in one container."""
    container = docker("run", "-d", "--rm", "--init", "--network=none", IMAGE, "sleep", "infinity").strip()

    def tree(patch: bytes) -> dict[str, list[object]]:
        apply = "git apply --binary --whitespace=nowarn --allow-empty - &&" if patch else ""
        command = f"rm -rf /tmp/copy && cp -a /testbed /tmp/copy && cd /tmp/copy && {apply} python3 -c '{TREE}'"
        done = subprocess.run(
            ["docker", "exec", "-i", container, "bash", "-c", command],
            input=patch,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return dict(json.loads(done.stdout))

    yield tree
    docker("rm", "-f", container)


@pytest.mark.parametrize("name", DEEDS)
def test_the_diff_gives_the_same_tree(
    live: Server, clean_tree: Callable[[bytes], dict[str, list[object]]], name: str
) -> None:
    """The agent's changes are graded incorrectly, or not at all."""
    sid = live.begin(UNGRADED)
    assert "exit code 0]" in live.run(sid, f"{{ {DEEDS[name]}\n}} 2>/tmp/said || cat /tmp/said")
    look = f"python3 -c '{TREE}' && ls /tmp"
    tree, _, ran = docker("exec", "-w", "/testbed", live.container(sid), "bash", "-c", look).partition("\n")
    assert live.finish(sid)["state"] == "ended"
    patch = live.patch(sid)
    assert bool(patch) == (name != "nothing")
    assert clean_tree(patch) == json.loads(tree)
    assert "fsmonitor-ran" not in ran
    assert ("removed .git" in live.session(sid)["patch"]["cause"]) == (name == "removed .git")


def test_ignored_files_and_our_own_stay_out(live: Server) -> None:
    """The patch has caches, or files of the service; or a file that the fix needs is left out and nothing says so."""
    sid = live.begin(UNGRADED)
    live.run(
        sid,
        "echo 'build/' >> .gitignore; mkdir build .pytest_cache; echo x > build/out; python3 -m compileall -q ledger;"
        " echo '*' | tee .pytest_cache/.gitignore > .pytest_cache/CACHEDIR.TAG; echo y > y",  # as pytest does
    )
    assert live.finish(sid)["cause"].endswith(".gitignore hides them: new files, 1 (build/out)")
    names = {line.split(b" b/")[-1] for line in live.patch(sid).splitlines() if line.startswith(b"diff --git")}
    assert names == {b".gitignore", b"y"}


def test_a_second_work_tree_stays_out(live: Server) -> None:
    """Its copies of the tests were collected beside the true ones, whose modules have the same names: a fix got 0.0.

    What the repository has, and what only looks like a work tree, stays in.
    """
    sid = live.begin(UNGRADED)
    live.run(
        sid,
        f"{_ME}; echo x > x; git add x; git commit -qm x; git worktree add -q wt; git worktree add -q -b b deep/wt;"
        " cp wt/.git ledger/.git; mkdir other; echo y > other/y; echo 'gitdir: ../x' > other/.git",
    )
    live.finish(sid)
    names = {line.split(b" b/")[-1] for line in live.patch(sid).splitlines() if line.startswith(b"diff --git")}
    assert names == {b"x", b"other/y"}


def test_a_clone_of_the_repository_stays_out(live: Server) -> None:
    """An agent that compares with the base by a clone beside its work got 0.0 for a right fix, as by a work tree.

    Another repository stays in, also one with files of the same names.
    """
    sid = live.begin(UNGRADED)
    live.run(
        sid,
        f"{_ME}; echo x > x; git add x; git commit -qm x; git clone -q . clone; cp -r clone /tmp/c; mkdir deep;"
        " cp -r /tmp/c deep/copy; rm -r deep/copy/README.md; git -C clone rm -q README.md; cp -r /tmp/c/.git ledger/;"
        " mkdir other; cp -r README.md /tmp/c/.git other; git init -q empty",
    )
    live.finish(sid)
    names = {line.split(b" b/")[-1] for line in live.patch(sid).splitlines() if line.startswith(b"diff --git")}
    assert names == {b"x", b"other/README.md"}


def test_a_patch_that_is_too_large(live: Server) -> None:
    """A huge tree crashes the service, or counts as an empty patch."""
    sid = live.begin()
    live.run(sid, "head -c 6000000 /dev/urandom > huge.bin")
    assert live.finish(sid)["state"] == "ended"
    got = live.reward(sid)
    assert "SANDBOX_MAX_PATCH_MB" in str(got["cause"])
    assert (got["verdict"], got["patch_is_None"], got["mask"], got["reward"]) == ("empty_patch", True, False, 0.0)


def test_a_removed_work_tree(live: Server) -> None:
    """An agent that removes everything gets an error instead of a verdict."""
    sid = live.begin()
    live.say(sid, bash("cd /; rm -rf /testbed"))
    assert live.finish(sid)["state"] == "ended"
    got = live.reward(sid)
    assert "removed the work tree" in str(got["cause"]) and got["mask"] is False
