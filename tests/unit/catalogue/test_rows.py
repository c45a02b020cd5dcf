"""Fields and their spellings."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.catalogue.instance import SandboxSpec, SweproGrader, TaskInstance
from sandbox_server.catalogue.rows import SourceRow
from sandbox_server.catalogue.swepro import setup_commands
from sandbox_server.errors import RowRejected

NAMES = st.lists(st.text(), max_size=6)


def row(**fields: object) -> SourceRow:
    return SourceRow(3, fields)


@given(NAMES)
def test_every_spelling_of_a_list_is_the_same_list(names: list[str]) -> None:
    """Data sets write the same list four ways; a name that changes on the way is a test that never passes."""
    for spelled in (names, tuple(names), json.dumps(names), json.dumps(names, ensure_ascii=False), repr(names)):
        assert row(FAIL_TO_PASS=spelled).names("FAIL_TO_PASS", "fail_to_pass") == tuple(names)
        assert row(fail_to_pass=spelled).names("FAIL_TO_PASS", "fail_to_pass") == tuple(names)


@pytest.mark.parametrize("nothing", [None, "", "  ", "[]", "null", "None", "()", []])
def test_nothing_is_the_empty_list(nothing: object) -> None:
    """SWE-Dev writes P2P as `[]`, others leave it out."""
    assert row(a=nothing).names("a") == ()
    assert row().names("a") == ()


@given(st.one_of(st.text(), st.integers(), st.lists(st.integers(), min_size=1), st.dictionaries(st.text(), st.text())))
def test_anything_else_is_a_list_or_a_rejection_with_its_line(value: object) -> None:
    """A row of garbage must name its line; an exception of a parser would name nothing."""
    try:
        names = row(a=value).names("a")
    except RowRejected as error:
        assert error.line == 3
        assert error.detail.startswith("line 3: a is not a list of texts: ")
        assert len(error.detail) < 200
    else:
        assert all(isinstance(name, str) for name in names)


@pytest.mark.parametrize(
    "value", ["[" * 100_000, "__import__('os').system('true')", "test_one", "[1]", '["a", 1]', "{}", 7]
)
def test_what_no_list_is(value: object) -> None:
    """Nothing is evaluated, and no nesting brings the parser down."""
    with pytest.raises(RowRejected):
        row(a=value).names("a")


def test_texts() -> None:
    """Parquet gives versions as numbers; the error for a missing column names the column."""
    assert row(version=1.5).text("version") == "1.5"
    assert row(version=2).text("version") == "2"
    assert row(version=None, other="x").text("version", "other") == "x"
    assert row().text("version", default="") == ""
    with pytest.raises(RowRejected, match="line 3: version is missing"):
        row().text("version")
    for wrong in (["x"], {}, True):
        with pytest.raises(RowRejected, match="version is not a text"):
            row(version=wrong).text("version")


@pytest.mark.parametrize("wrong", ["x", 0, -1, "nan", "inf", [], ""])
def test_numbers(wrong: object) -> None:
    """A timeout of 0 or NaN would end every grading at once, or never."""
    assert row(t=5).number("t", default=1.0) == row(t="5").number("t", default=1.0) == 5.0
    assert row().number("t", default=1.0) == 1.0
    with pytest.raises(RowRejected):
        row(t=wrong).number("t", default=1.0)


def test_the_hash_of_a_row_is_of_its_content() -> None:
    """It says whether two imports saw the same row, whichever file format and key order they came in."""
    one, two = SourceRow(1, {"a": 1, "b": ["x"]}), SourceRow(9, {"b": ["x"], "a": 1})
    assert one.sha256 == two.sha256 != SourceRow(1, {"a": 1, "b": ["y"]}).sha256


def test_a_file_that_a_row_names_has_a_bound(tmp_path: Path) -> None:
    """A row of gigabytes is read for each session of its instance."""
    (tmp_path / "run.sh").write_bytes(b"a" * (1 << 20))
    assert len(SourceRow(1, {}, tmp_path).file_text("run.sh")) == 1 << 20
    (tmp_path / "run.sh").write_bytes(b"a" * ((1 << 20) + 1))
    with pytest.raises(RowRejected, match="longer than 1 MiB"):
        SourceRow(1, {}, tmp_path).file_text("run.sh")


def test_only_the_line_that_brings_the_tests_is_left_out() -> None:
    """A session lacks what the rest of its set-up makes; or it sees the tests that grade it."""
    checkout = "git checkout abc -- t.py"
    task = TaskInstance(
        instance_id="p__p-1",
        repo="p/p",
        sandbox=SandboxSpec(images=("i",), setup_commands=(f"set -e\nmake\n{checkout}\n", "cd a\nmake", checkout)),
        grader=SweproGrader(run_script="", parser_script="", restore_tests=checkout),
    )
    assert setup_commands(task) == ("set -e\nmake", "cd a\nmake", "")
    assert setup_commands(task.model_copy(update={"grader": None})) == task.sandbox.setup_commands
