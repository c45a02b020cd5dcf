"""Splitting an eval script at its markers, and removing some files from its test patch."""

import subprocess
from pathlib import Path

import pytest

from sandbox_server.catalogue.eval_script import (
    END_MARKER,
    START_MARKER,
    TEST_PATCH_REFUSED,
    exit_if_test_patch_refused,
    make_eval_script,
    split,
    without_files,
)
from sandbox_server.catalogue.patch_files import PatchFiles

_NEW = "diff --git a/t/new.py b/t/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/t/new.py\n@@ -0,0 +1 @@\n+new\n"
_OLD = "diff --git a/t/old.py b/t/old.py\n--- a/t/old.py\n+++ b/t/old.py\n@@ -1 +1 @@\n-was\n+is\n"
_MOVED = "diff --git a/t/a.py b/t/b.py\nsimilarity index 100%\nrename from t/a.py\nrename to t/b.py\n"


def script(test_patch: str) -> str:
    files = PatchFiles(("t/old.py",), ("t/new.py",))
    return make_eval_script(
        workdir="/testbed", base_commit="abc", test_patch=test_patch, files=files, test_cmd="pytest {test_files}"
    )


def test_set_up_and_tests() -> None:
    """All before the start marker, all between the two, nothing of what follows."""
    cut = split(script(_OLD + _NEW))
    assert cut.tests == "pytest t/old.py t/new.py"
    assert cut.setup.startswith("#!/bin/bash\nset -uxo pipefail\n") and cut.setup.endswith("EOF_114329324912")
    assert START_MARKER not in cut.setup


@pytest.mark.parametrize("quote", ["'", '"', ""])
@pytest.mark.parametrize("command", [":", "echo"])
def test_a_marker_that_the_test_patch_quotes(command: str, quote: str) -> None:
    """A test patch may quote the markers; quoted ones print nothing and do not split the script."""
    lines = [f"{command} {quote}{marker}{quote}" for marker in (START_MARKER, END_MARKER)]
    quoted = f"git apply - <<E\n+: '{START_MARKER}'\n: '{START_MARKER}'\n: '{END_MARKER}'\nE"
    cut = split(f"{quoted}\n{lines[0]}\na\nb\n{lines[1]}\nc\n")
    assert cut.tests == "a\nb" and cut.setup.endswith("\nE")


@pytest.mark.parametrize("text", ["", "pytest\n", f": '{START_MARKER}'\npytest\n", f": '{END_MARKER}'\npytest\n"])
def test_without_both_markers_it_cannot_be_used(text: str) -> None:
    """Nothing would tell which of its output is the tests'."""
    with pytest.raises(ValueError, match="no line of it is"):
        split(text)


def test_files_that_are_written_otherwise() -> None:
    """Their sections go, the others stay; what is renamed stays for the old file's sake."""
    setup = split(script(_OLD + _NEW + _MOVED)).setup
    without = without_files(setup, _OLD + _NEW + _MOVED, ["t/old.py", "t/b.py"])
    assert _OLD not in without and _NEW.strip() in without and _MOVED.strip() in without
    assert without_files(setup, _OLD + _NEW + _MOVED, []) == setup
    assert "t/new.py b/t/new.py" not in without_files(split(script(_NEW)).setup, _NEW, ["t/new.py"])
    assert without_files("set -eux\n" + _NEW, _NEW, ["t/new.py"]) == "set -eux\n" + _NEW
    assert without_files("git apply /test.patch", _NEW, ["t/new.py"]) == "git apply /test.patch"


@pytest.mark.parametrize("patch", [_NEW, _NEW.replace("+new", "+git apply - <<EOF"), "\n"])
def test_a_set_up_ends_if_its_patch_is_refused(tmp_path: Path, patch: str) -> None:
    """The benchmark's own goes on, with the tests that were there. Nothing to apply is no reason to end."""
    (tmp_path / "t").write_text("no folder\n")
    setup = f"git apply -v - <<'EOF_1'\n{patch}EOF_1\ntrue"
    done = subprocess.run(
        ["bash", "-c", exit_if_test_patch_refused(setup)], cwd=tmp_path, capture_output=True, timeout=30
    )
    assert done.returncode == (TEST_PATCH_REFUSED if patch.strip() else 0), done.stderr
    assert exit_if_test_patch_refused("git apply /test.patch") == "git apply /test.patch"
