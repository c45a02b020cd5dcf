"""One row of a data set, and the spellings of its fields."""

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

_FILE_BYTES = 1 << 20  # an instance is read whole from SQL for each of its sessions


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row as it is in the file."""

    line: int
    """Line in a JSON Lines file, or row number in a JSON list or a parquet file; 1-based."""
    fields: Mapping[str, object]
    folder: Path = Path()
    """Folder of its file; paths in the row are relative to it."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the row as JSON with sorted keys, so that it is the same for every file format."""
        return hashlib.sha256(json.dumps(self.fields, sort_keys=True, default=str).encode()).hexdigest()

    def rejected(self, why: str) -> RowRejected:
        """An error that names this row."""
        return RowRejected(why, line=self.line)

    def text(self, *keys: str, default: str | None = None) -> str:
        """The first of `keys` that is present and not null, as text; numbers are converted.

        Raises:
            RowRejected: it is not text, or none is present and `default` is None.

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
        """The first of `keys` that is present, as a list of texts: a list, or a JSON string or Python literal of one.

        A missing key, null and "" give an empty list.

        Raises:
            RowRejected: it is none of these.

        """
        value = self._first(keys)
        parsed = _literal(value)
        if parsed is None:
            return ()
        if isinstance(parsed, (list, tuple)) and all(isinstance(name, str) for name in parsed):
            return tuple(parsed)
        raise self.rejected(f"{keys[0]} is not a list of texts: {_shown(value)}")

    def mapping(self, key: str) -> Mapping[str, object]:
        """`key` as an object, or as a JSON string of one; {} if missing."""
        value = self.fields.get(key)
        parsed = _literal(value)
        if parsed is None:
            return {}
        if isinstance(parsed, Mapping) and all(isinstance(name, str) for name in parsed):
            return parsed
        raise self.rejected(f"{key} is not an object: {_shown(value)}")

    def number(self, key: str, *, default: float) -> float:
        """`key` as a positive number, or as a text of one.

        Raises:
            RowRejected: it is not.

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
        """The content of a file that the row names; relative paths start at the folder of the row's own file.

        Raises:
            RowRejected: it is missing, not UTF-8, or longer than 1 MiB.

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
            RowRejected: it is not a readable diff.

        """
        try:
            return patch_files(self.text("test_patch", default=""))
        except ValueError as error:
            raise self.rejected(f"test_patch: {error}") from None

    def _first(self, keys: Sequence[str]) -> object:
        return next((value for key in keys if (value := self.fields.get(key)) is not None), None)


class OldRowConverter(Protocol):
    """Makes the benchmark's eval scripts for rows without one."""

    def convert(self, rows: Sequence[SourceRow]) -> list["Converted | Unconvertible"]:
        """One answer per row, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Converted:
    """The benchmark library's conversion of an old row."""

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
    """One family of data sets: IMPORTER in `importers/x.py`. No two importers match the same row."""

    general: bool
    """A general importer is asked only if no other matches the row."""

    def matches(self, row: Mapping[str, object]) -> bool:
        """Whether a row with these fields belongs to the family. Checks keys, rarely values; never raises."""
        ...

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """Yield one instance per row, in order.

        Raises:
            RowRejected: a row is unusable. A ValidationError counts as the rejection of the current row.

        """
        ...


def _literal(value: object) -> object:
    """Parse a text as JSON or a Python literal (blank: None); return any other value unchanged. Executes nothing."""
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
