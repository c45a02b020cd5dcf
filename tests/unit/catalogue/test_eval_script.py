"""Scripts in the benchmark's shape, run for real in a git repository."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.catalogue.eval_script import bare_checkout_repaired, make_eval_script
from sandbox_server.catalogue.patch_files import PatchFiles, patch_files

OLD, NEW, GONE = "tests/té st.py", 'tests/nü "q".py', "tests/gone.py"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository whose test folder holds a name with a space and an accent."""
    (tmp_path / "tests").mkdir()
    (tmp_path / OLD).write_text("old\n")
    (tmp_path / GONE).write_text("gone\n")
    (tmp_path / "code.py").write_text("code\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "base")
    return tmp_path


def git(repo: Path, *arguments: str) -> str:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(repo.parent)}
    done = subprocess.run(["git", *arguments], cwd=repo, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def patch_of(repo: Path) -> str:
    (repo / OLD).write_text("old\nmore\n")
    (repo / NEW).write_text("new\n")
    (repo / GONE).unlink()
    git(repo, "add", "-A")
    patch = git(repo, "diff", "--cached", "--binary")
    git(repo, "reset", "-q", "--hard")
    return patch


def run(repo: Path, script: str) -> str:
    file = repo.parent / f"{repo.name}-eval.sh"
    file.write_text(script)
    environment = {**os.environ, "HOME": str(repo.parent)}
    done = subprocess.run(
        ["bash", file],
        cwd="/",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def test_a_script_lays_the_tests_runs_them_and_takes_them_away(repo: Path) -> None:
    """Real bash, real git: quoting of odd names, both markers, the agent's edit of a test undone, no file left."""
    patch = patch_of(repo)
    files = patch_files(patch)
    assert set(files.existing) == {OLD, GONE}
    assert files.new == (NEW,)
    (repo / OLD).write_text("the agent's own\n")
    (repo / NEW).write_text("a stray file of the agent\n")
    script = make_eval_script(
        workdir=str(repo), base_commit="", test_patch=patch, files=files, test_cmd="cat code.py {test_files}"
    )
    log = run(repo, script)
    inside = log.split("+ : '>>>>> Start Test Output'\n")[1].split("+ : '>>>>> End Test Output'\n")[0]
    shown = [line for line in inside.split("\n") if not line.startswith(("+ ", "cat: "))]
    assert sorted(shown) == ["", "code", "more", "new", "old"]  # of the deleted test nothing is left to show
    assert (repo / OLD).read_text() == "old\n"
    assert (repo / GONE).read_text() == "gone\n"
    assert not (repo / NEW).exists()
    assert git(repo, "status", "--porcelain") == ""


def test_several_commands_are_run_one_after_the_other(repo: Path) -> None:
    """A build before the tests; the markers stand around all of them."""
    patch = patch_of(repo)
    files = patch_files(patch)
    script = make_eval_script(
        workdir=str(repo), base_commit="HEAD", test_patch=patch, files=files, test_cmd=["echo one", "echo two"]
    )
    lines = run(repo, script).split("\n")
    start = lines.index("+ : '>>>>> Start Test Output'")
    assert lines[start + 1 : start + 6] == ["+ echo one", "one", "+ echo two", "two", "+ : '>>>>> End Test Output'"]


def test_activation_and_installation_only_when_asked() -> None:
    """`pip install` without a network costs eight seconds a grading."""
    facts = {
        "workdir": "/testbed",
        "base_commit": "abc",
        "test_patch": "",
        "files": PatchFiles((), ()),
        "test_cmd": "t",
    }
    plain = make_eval_script(**facts)
    for absent in ("conda", "pip install", "git apply", "git checkout"):
        assert absent not in plain
    asked = make_eval_script(**facts, activate="conda activate testbed", install="pip install -e .").split("\n")
    assert asked.index("conda activate testbed") < asked.index("cd /testbed") < asked.index("pip install -e .")


def test_data_files_are_no_tests(repo: Path) -> None:
    """pytest given a .json fails in collection."""
    files = PatchFiles(("tests/a.py", "tests/d.json"), ("tests/b.py", "tests/e.yml"))
    script = make_eval_script(
        workdir="/t", base_commit="abc", test_patch="x", files=files, test_cmd="pytest -rA {test_files}"
    )
    assert "\npytest -rA tests/a.py tests/b.py\n" in script
    assert script.count("git checkout abc tests/a.py tests/d.json\n") == 2
    assert script.count("rm -f tests/b.py tests/e.yml\n") == 2


def test_a_patch_that_ends_the_here_document_is_refused() -> None:
    """The rest of it would run as shell commands."""
    with pytest.raises(ValueError, match="EOF_114329324912"):
        make_eval_script(
            workdir="/t",
            base_commit="",
            test_patch="EOF_114329324912\nrm -rf /",
            files=PatchFiles((), ()),
            test_cmd="t",
        )


def test_the_bare_checkout_is_repaired_and_nothing_else() -> None:
    """SWE-bench issue 518: it reverts the image's own set-up commit, and every right fix then fails."""
    script = "cd /testbed\ngit checkout abc \ngit apply -\n git checkout abc \ntest\ngit checkout abc \n"
    repaired = bare_checkout_repaired(script, "abc", PatchFiles((), ("t/new one.py",)))
    assert (
        repaired == "cd /testbed\nrm -f 't/new one.py'\ngit apply -\n git checkout abc \ntest\nrm -f 't/new one.py'\n"
    )
    assert bare_checkout_repaired(script, "abc", PatchFiles(("t/a.py",), ("t/b.py",))) == script


def test_files_of_every_kind_of_change(repo: Path) -> None:
    """Binary, empty, renamed and quoted files: a missed new one is a stray-file false negative."""
    (repo / "b.bin").write_bytes(b"\0\1")
    (repo / "empty.py").touch()
    git(repo, "mv", "code.py", "co de.py")
    (repo / "tab\there\\ü.py").write_text("x\n")
    git(repo, "add", "-A")
    files = patch_files(git(repo, "diff", "--cached", "--binary", "-M"))
    assert files.existing == ("code.py",)
    assert sorted(files.new) == sorted(["b.bin", "empty.py", "co de.py", "tab\there\\ü.py"])
    unquoted = patch_files(git(repo, "-c", "core.quotePath=false", "diff", "--cached", "--binary", "-M"))
    assert unquoted == files


@given(st.text())
def test_no_text_brings_the_patch_reader_down(text: str) -> None:
    """A row's test patch is data; it gives files or a ValueError."""
    try:
        patch_files(text)
    except ValueError as error:
        assert "no readable diff" in str(error)
