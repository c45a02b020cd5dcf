"""Rows out of a file: JSON Lines, JSON (a list or one object), parquet. Told apart by content, not by suffix."""

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

from sandbox_server.catalogue.rows import SourceRow
from sandbox_server.errors import MalformedRequest, RowRejected


def read_rows(path: Path) -> list[SourceRow]:
    """All rows of `path`; blank lines are skipped, a byte order mark is taken off.

    Raises:
        RowRejected: a line is not a JSON object.
        MalformedRequest: the file cannot be read, or holds no row.

    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MalformedRequest(f"cannot read {path}: {error.strerror}") from None
    if content.startswith(b"PAR1"):
        # at this point, not at the top: pyarrow costs 0.3 s and 60 MB that no server needs
        parquet = importlib.import_module("sandbox_server.catalogue.parquet")
        values: Iterator[tuple[int, object]] = enumerate(cast(_ReadParquet, parquet.read_parquet)(path), start=1)
    else:
        values = _json_values(content.removeprefix(b"\xef\xbb\xbf"))
    rows = [SourceRow(line, _object(line, value)) for line, value in values]
    if not rows:
        raise MalformedRequest(f"{path} holds no row")
    return rows


_ReadParquet = Callable[[Path], list[dict[str, object]]]


def _json_values(content: bytes) -> Iterator[tuple[int, object]]:
    if content.lstrip()[:1] == b"[":
        document = _parsed(content, 1)
        yield from enumerate(cast(list[object], document), start=1)
        return
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
    if lines and not _is_json(lines[0][1]) and _is_json(content):
        yield 1, json.loads(content)  # one object over several lines
        return
    for number, line in lines:
        yield number, _parsed(line, number)


def _parsed(text: bytes, line: int) -> object:
    try:
        return json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise RowRejected(f"not UTF-8: byte {error.start} is 0x{text[error.start]:02x}", line=line) from None
    except json.JSONDecodeError as error:
        raise RowRejected(f"not JSON: {error.msg} at column {error.colno}", line=line + error.lineno - 1) from None
    except RecursionError:
        raise RowRejected("not usable JSON: nested too deeply", line=line) from None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _object(line: int, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise RowRejected(f"a row must be a JSON object, not {type(value).__name__}", line=line)
    return value
