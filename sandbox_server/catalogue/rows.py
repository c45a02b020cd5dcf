"""One row of a data set, and the ways its fields are spelled."""

import ast
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.patch_files import PatchFiles, patch_files
from sandbox_server.errors import RowRejected

_FILE_BYTES = 1 << 20  # an instance is read whole, from SQL, for each of its sessions


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row as the file has it."""

    line: int
    """Line of a JSON Lines file; of a JSON list or a parquet file the row's number. From 1."""
    fields: Mapping[str, object]
    folder: Path = Path()
    """Of its file: what a path in the row is relative to."""

    @property
    def sha256(self) -> str:
        """Of the row as JSON with sorted keys, so that it is the same from every file format."""
        return hashlib.sha256(json.dumps(self.fields, sort_keys=True, default=str).encode()).hexdigest()

    def rejected(self, why: str) -> RowRejected:
        """The error that names this row."""
        return RowRejected(why, line=self.line)

    def text(self, *keys: str, default: str | None = None) -> str:
        """The first of `keys` that is there and not null, as text; a number is spelled out.

        Raises:
            RowRejected: it is no text, or none is there and `default` is None.

        """
        value = self._first(keys)
        if value is None:
            if default is None:
                raise self.rejected(f"{keys[0]} is missing")
            return default
        if isinstance(value, str):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        raise self.rejected(f"{keys[0]} is not a text: {_shown(value)}")

    def names(self, *keys: str) -> tuple[str, ...]:
        """The first of `keys` that is there, as a list of texts: a list, a JSON string or a Python literal of one.

        Nothing there, null and "" are the empty list.

        Raises:
            RowRejected: it is neither of these.

        """
        value = self._first(keys)
        parsed = _literal(value)
        if parsed is None:
            return ()
        if isinstance(parsed, (list, tuple)) and all(isinstance(name, str) for name in parsed):
            return tuple(parsed)
        raise self.rejected(f"{keys[0]} is not a list of texts: {_shown(value)}")

    def mapping(self, key: str) -> Mapping[str, object]:
        """`key` as an object, also where it is a JSON string of one; {} when it is not there."""
        value = self.fields.get(key)
        parsed = _literal(value)
        if parsed is None:
            return {}
        if isinstance(parsed, Mapping) and all(isinstance(name, str) for name in parsed):
            return parsed
        raise self.rejected(f"{key} is not an object: {_shown(value)}")

    def number(self, key: str, *, default: float) -> float:
        """`key` as a positive number, also where it is spelled as a text.

        Raises:
            RowRejected: it is none.

        """
        spelled = self.text(key, default=str(default))
        try:
            value = float(spelled)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise self.rejected(f"{key} is not a positive number: {_shown(spelled)}")
        return value

    def file_text(self, path: str) -> str:
        """The text of a file that the row names; relative paths begin at the folder of the row's own file.

        Raises:
            RowRejected: it is not there, no UTF-8, or longer than 1 MiB.

        """
        file = self.folder / path
        try:
            with file.open("rb") as stream:
                content = stream.read(_FILE_BYTES + 1)
        except OSError as error:
            raise self.rejected(f"cannot read {file}, which the row names: {error.strerror}") from None
        if len(content) > _FILE_BYTES:
            raise self.rejected(f"{file}, which the row names, is longer than 1 MiB")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise self.rejected(f"{file}, which the row names, is not UTF-8 at byte {error.start}") from None

    def test_files(self) -> PatchFiles:
        """The files of `test_patch`.

        Raises:
            RowRejected: it is no readable diff.

        """
        try:
            return patch_files(self.text("test_patch", default=""))
        except ValueError as error:
            raise self.rejected(f"test_patch: {error}") from None

    def _first(self, keys: Sequence[str]) -> object:
        return next((value for key in keys if (value := self.fields.get(key)) is not None), None)


class OldRowConverter(Protocol):
    """Makes the benchmark's eval scripts for rows that carry none."""

    def convert(self, rows: Sequence[SourceRow]) -> list["Converted | Unconvertible"]:
        """One answer a row, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Converted:
    """What the benchmark's library made of an old row."""

    eval_script: str
    log_parser: str
    eval_type: str
    library: str
    """Name and version, e.g. `swebench 4.1.0`."""


@dataclass(frozen=True, slots=True)
class Unconvertible:
    """The library does not know the row's repository or version."""

    because: str


class Importer(Protocol):
    """One family of data sets. `importers/x.py` holds one as IMPORTER; no two of them match the same row."""

    general: bool
    """Asked only about rows that no importer with `general` False matches."""

    def matches(self, row: Mapping[str, object]) -> bool:
        """Whether a row with these fields is of this family. Looks at the keys, seldom at values; never raises."""
        ...

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """One instance a row, in their order, each made when it is asked for.

        Raises:
            RowRejected: a row is unusable. A ValidationError is taken for the rejection of the row it came up for.

        """
        ...


def _literal(value: object) -> object:
    """A text as the JSON or Python literal that it spells (blank: None); any other value as it is. Runs nothing."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
