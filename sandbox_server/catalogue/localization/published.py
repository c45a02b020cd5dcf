"""The truth in a row's own column `file_changes`, as published data sets have it."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.localization.extract import LEVELS, is_asked
from sandbox_server.catalogue.localization.truth import Truth
from sandbox_server.catalogue.rows import SourceRow

COLUMN = "file_changes"
_UNTOLD = "the row's missing_levels names it"


def published_truth(row: SourceRow, suffixes: Sequence[str] = ()) -> Truth:
    """The files, modules and entities of `[{file, changes: {edited_modules, edited_entities, ...}}]`, or its text.

    A null counts as an empty list, except for levels in the column `missing_levels` (of `dataset build`): they are
    unknown.

    Raises:
        RowRejected: the row has no such column, or it has another shape.

    """
    changes = dict(_changes(row))
    files = sorted(path for path in changes if is_asked(path, suffixes))
    untold = [level for level in LEVELS if level in row.names("missing_levels")]
    names = {level: sorted({name for path in files for name in changes[path][level]}) for level in LEVELS}
    return Truth(
        files=tuple(files),
        modules=None if "modules" in untold else tuple(names["modules"]),
        entities=None if "entities" in untold else tuple(names["entities"]),
        unanswerable=not files,
        missing=dict.fromkeys(untold, _UNTOLD),
    )


def _changes(row: SourceRow) -> Iterator[tuple[str, dict[str, list[str]]]]:
    given = row.fields.get(COLUMN)
    if given is None:
        raise row.rejected(f"{COLUMN} is missing; without --truth {COLUMN} the truth is computed from the gold patch")
    listed = _parsed(given) if isinstance(given, str) else given
    if not isinstance(listed, list):
        raise row.rejected(f"{COLUMN} is not a list")
    for entry in listed:
        match entry:
            case {"file": str(path), "changes": Mapping() as changes}:
                yield path, {level: _names(row, changes.get(f"edited_{level}")) for level in LEVELS}
            case {"file": str(path), "changes": None}:
                yield path, {level: [] for level in LEVELS}
            case _:
                raise row.rejected(f"{COLUMN} holds an entry without `file` or `changes`")


def _names(row: SourceRow, given: object) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise row.rejected(f"{COLUMN}: edited_modules or edited_entities is not a list of texts")
    return given


def _parsed(text: str) -> object:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None
