"""Files of rows."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.catalogue.read import read_rows, stream_rows
from sandbox_server.errors import MalformedRequest, RequestError, RowRejected

ROWS = [{"a": 1, "l": ["x", "y"]}, {"a": 2, "l": []}]


def written(tmp_path: Path, content: bytes | str) -> Path:
    file = tmp_path / "rows"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ('{"a": 1, "l": ["x", "y"]}\n\n  \r\n{"a": 2, "l": []}', [1, 4]),
        ('\ufeff{"a": 1, "l": ["x", "y"]}\r\n{"a": 2, "l": []}\r\n', [1, 2]),
        (json.dumps(ROWS), [1, 2]),
        (json.dumps(ROWS, indent=1), [1, 2]),
    ],
)
def test_json_and_json_lines(tmp_path: Path, content: str, lines: list[int]) -> None:
    """Blank lines are skipped and yet counted: the line that an error names is the one an editor shows."""
    rows = read_rows(written(tmp_path, content))
    assert [row.fields for row in rows] == ROWS
    assert [row.line for row in rows] == lines


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_is_one_row(tmp_path: Path, indent: int | None) -> None:
    """A single task, as someone writes by hand."""
    assert [row.fields for row in read_rows(written(tmp_path, json.dumps(ROWS[0], indent=indent)))] == ROWS[:1]


def test_parquet(tmp_path: Path) -> None:
    """The hub's own format; lists stay lists."""
    file = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    rows = read_rows(file)
    assert [(row.line, row.fields) for row in rows] == [(1, ROWS[0]), (2, ROWS[1])]
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(MalformedRequest, match="cannot read"):
        read_rows(file)


@pytest.mark.parametrize(
    ("content", "line", "why"),
    [
        (b'{"a": 1}\n{"a": \n', 2, "not JSON"),
        (b'\n{"a": 1}\n\n{"a": 1} x\n', 4, "not JSON"),
        (b'{"a": 1}\n{"a": "\xff"}\n', 2, "not UTF-8: byte 7 is 0xff"),
        (b'{"a": 1}\n[1]\n', 2, "a row must be a JSON object, not list"),
        (b'[{"a": 1}, 7]', 2, "a row must be a JSON object, not int"),
        (b'[\n{"a": 1},\n{"a": }]', 3, "not JSON"),
        (b'{"a": ' + b"[" * 100_000, 1, "nested too deeply"),
        (b"hello", 1, "not JSON"),
    ],
)
def test_a_bad_row_is_told_by_its_line(tmp_path: Path, content: bytes, line: int, why: str) -> None:
    """Somebody has to find it among thousands."""
    with pytest.raises(RowRejected, match=why) as caught:
        read_rows(written(tmp_path, content))
    assert caught.value.line == line


@pytest.mark.parametrize("content", ["", "\n \n", "[]"])
def test_a_file_without_rows_is_a_mistake(tmp_path: Path, content: str) -> None:
    """Importing the wrong file must not look like a success."""
    with pytest.raises(MalformedRequest, match="holds no row"):
        read_rows(written(tmp_path, content))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """One clear line, no traceback."""
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(MalformedRequest, match="cannot read"):
            read_rows(path)


@given(content=st.binary(max_size=60))
def test_no_file_brings_it_down(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes give rows or one of our own errors."""
    file = tmp_path_factory.getbasetemp() / "noise"
    file.write_bytes(content)
    try:
        read_rows(file)
    except RequestError as error:
        assert error.detail


def test_a_bad_row_does_not_hide_those_after_it(tmp_path: Path) -> None:
    """A build goes on past it."""
    found = list(stream_rows(written(tmp_path, '{"a": 1}\nno\n[]\n{"a": 2}\n')))
    assert [row.line for row in found] == [1, 2, 3, 4]
    assert [isinstance(row, RowRejected) for row in found] == [False, True, True, False]


def test_pyarrow_is_not_loaded_for_json() -> None:
    """It costs 0.3 s and 60 MB in a server that imports no parquet."""
    program = (
        "import sys, sandbox_server.catalogue.importing; print({'pyarrow', 'swebench', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
