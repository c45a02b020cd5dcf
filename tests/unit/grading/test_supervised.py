"""Telling the supervisor's output from the tests' output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.errors import GraderBroken
from sandbox_server.grading.graders.swebench import framed
from sandbox_server.grading.supervised import Plan, _read, is_text, with_absolute_paths
from sandbox_server.sandbox.base import ExecResult, Output

_NONCE = "0123456789abcdef" * 2
_FORGED = "fedcba9876543210" * 2
_NOISE = st.text().map(lambda text: text.replace(_NONCE, ""))
_LINES = st.sampled_from(
    [f"\n{_FORGED} begin\n", f"\n{_FORGED} end 0\n", f"\n{_FORGED} unplaced /x\n", "\n", "end 0\n"]
)
_SAID = st.lists(st.one_of(_NOISE, _LINES)).map("".join)


def result(stderr: str, status: int | None, stdout: str = "out") -> ExecResult:
    return ExecResult(status, Output(stdout.encode()), Output(stderr.encode("utf-8", "replace")), status is None, 1.0)


@given(said=_SAID, status=st.integers(0, 255))
def test_without_its_word_there_is_no_end(said: str, status: int) -> None:
    """Tests that print all that a supervisor could, but for the word that they do not have."""
    run = _read(result(said, status), _NONCE, merged=False)
    assert (run.exit_code, run.started, run.unplaced, run.status) == (None, False, "", status)


@given(before=_SAID, errors=_SAID, late=_SAID, code=st.integers(0, 255), status=st.integers(0, 255))
def test_its_end_is_one_if_the_engine_agrees(before: str, errors: str, late: str, code: int, status: int) -> None:
    """If something else ended the supervisor, its exit status differs from the reported one, or none was reported."""
    said = f"{before}\n{_NONCE} begin\n{errors}\n{_NONCE} end {code}\n{late}"
    run = _read(result(said, status), _NONCE, merged=False)
    assert run.exit_code == (code if code == status else None)
    assert run.started
    if not {"\ufffd", "\r"} & set(before + errors):
        assert (run.setup_log, run.stderr) == (before, errors)


@pytest.mark.parametrize("code", ["9" * 5000, "\u0660", "-1", "0x0", "1_0"])
def test_an_end_with_something_else_than_a_status(code: str) -> None:
    """An exception would be a fault of ours, masked: whoever learns the word could mask a verdict at will."""
    run = _read(result(f"\n{_NONCE} begin\n\n{_NONCE} end {code}\n", 0), _NONCE, merged=False)
    assert run.exit_code is None and run.started


def test_a_file_that_could_not_be_written() -> None:
    """Its name is all that follows."""
    run = _read(result(f"mkdir: no\n\n{_NONCE} unplaced /a b\n", 125), _NONCE, merged=True)
    assert (run.unplaced, run.exit_code, run.started, run.setup_log) == ("/a b", None, False, "mkdir: no\n")


def test_a_plan_is_told_by_lengths_in_bytes() -> None:
    """Whatever the texts hold but NUL, which bash drops without a word."""
    told = Plan("tests ü", setup="\n", files={"/ü": b"a\n\n"}).stdin("n")
    assert told == "n 1 1 1 8 1\n\ntests ü3 3\n/üa\n\n".encode()
    with pytest.raises(GraderBroken, match="NUL"):
        Plan("a\0b").stdin("n")


def test_paths_are_the_workdirs() -> None:
    """Relative ones; absolute ones stay."""
    assert with_absolute_paths("/testbed", {"t/a.py": b"", "/f.py": b""}) == {"/testbed/t/a.py": b"", "/f.py": b""}
    assert with_absolute_paths("/testbed", None) == {}
    assert is_text("ü".encode()) and not is_text(b"\xff") and not is_text(b"a\0")


def test_the_frame_is_the_librarys() -> None:
    """As its script under `set -x` would print it."""
    assert framed("PASSED t", 3) == (
        "+ : '>>>>> Start Test Output'\nPASSED t\n+ SWEBENCH_TEST_EXIT_CODE=3\n+ : '>>>>> End Test Output'\n"
        "+ echo '>>>>> Test Exit Code: 3'\n>>>>> Test Exit Code: 3\n"
    )
