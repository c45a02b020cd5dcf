"""Reads rows from JSON Lines, JSON (a list or one object) or parquet. The format is detected by content, not suffix."""

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from sandbox_server.catalogue.rows import SourceRow
from sandbox_server.errors import MalformedRequest, RowRejected


def read_rows(path: Path) -> list[SourceRow]:
    """All rows of `path`; blank lines and a byte order mark are skipped.

    Raises:
        RowRejected: a line is not a JSON object.
        MalformedRequest: the file cannot be read, or has no rows.

    """
    rows: list[SourceRow] = []
    for row in stream_rows(path):
        if isinstance(row, RowRejected):
            raise row
        rows.append(row)
    return rows


def stream_rows(path: Path) -> Iterator[SourceRow | RowRejected]:
    """Iterate over the rows of `path`; a bad row comes as its error. A JSON list is read whole, else row by row.

    Raises:
        MalformedRequest: the file cannot be read, or has no rows.
        RowRejected: the file begins like a JSON list but is none.

    """
    none = True
    try:
        with path.open("rb") as file:
            for line, value in _values(path, file):
                none = False
                yield value if isinstance(value, RowRejected) else _object(line, value, path.parent)
    except OSError as error:
        raise MalformedRequest(f"cannot read {path}: {error.strerror}") from None
    if none:
        raise MalformedRequest(f"{path} holds no row")


_ReadParquet = Callable[[Path], Iterator[dict[str, object]]]


def _values(path: Path, file: BinaryIO) -> Iterator[tuple[int, object]]:
    """(line, value) pairs; the value is a RowRejected if it cannot be parsed."""
    begin = file.read(4)
    if begin == b"PAR1":
        # imported here: pyarrow costs 0.3 s and 60 MB that no server needs
        parquet = importlib.import_module("sandbox_server.catalogue.parquet")
        yield from enumerate(cast(_ReadParquet, parquet.read_parquet)(path), start=1)
        return
    start = 3 if begin.startswith(b"\xef\xbb\xbf") else 0
    file.seek(start)
    lines = ((number, line.removesuffix(b"\n")) for number, line in enumerate(file, start=1) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    number, text = first
    if text.lstrip()[:1] == b"[":
        yield from _list(path, start)
    elif not _is_json(text) and _is_json(whole := _content(path, start)):
        yield 1, json.loads(whole)  # one object over several lines
    else:
        yield number, _parsed(text, number)
        yield from ((number, _parsed(text, number)) for number, text in lines)


def _list(path: Path, start: int) -> Iterator[tuple[int, object]]:
    document = _parsed(_content(path, start), 1)
    if isinstance(document, RowRejected):
        raise document
    yield from enumerate(cast(list[object], document), start=1)


def _content(path: Path, start: int) -> bytes:
    return path.read_bytes()[start:]


def _parsed(text: bytes, line: int) -> object:
    """The JSON value, or the error."""
    try:
        return json.loads(text.decode())
    except UnicodeDecodeError as error:
        return RowRejected(f"not UTF-8: byte {error.start} is 0x{text[error.start]:02x}", line=line)
    except json.JSONDecodeError as error:
        return RowRejected(f"not JSON: {error.msg} at column {error.colno}", line=line + error.lineno - 1)
    except RecursionError:
        return RowRejected("not usable JSON: nested too deeply", line=line)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _object(line: int, value: object, folder: Path) -> SourceRow | RowRejected:
    if not isinstance(value, dict):
        return RowRejected(f"a row must be a JSON object, not {type(value).__name__}", line=line)
    return SourceRow(line, value, folder)
