"""One row of a data set for code search: the source's columns beside the truth at every level."""

import json
from collections.abc import Mapping, Sequence

import pyarrow

from sandbox_server.catalogue.changes import UnreadablePatch
from sandbox_server.catalogue.instance import instance_hash
from sandbox_server.catalogue.localization.extract import LEVELS
from sandbox_server.catalogue.localization.task import found_truth
from sandbox_server.catalogue.localization.trees import Trees
from sandbox_server.catalogue.localization.truth import Spans, Truth
from sandbox_server.catalogue.row_source import puts_bug_in
from sandbox_server.catalogue.rows import SourceRow

Row = dict[str, object]

_TEXT = pyarrow.string()
_TEXTS = pyarrow.list_(_TEXT)


def _spans(first: str, second: str) -> pyarrow.DataType:
    pair = pyarrow.struct([(first, pyarrow.int64()), (second, pyarrow.int64())])
    return pyarrow.list_(pyarrow.struct([("file", _TEXT), ("spans", pyarrow.list_(pair))]))


_CHANGE_LEVELS = ("added_entities", "added_modules", "edited_entities", "edited_modules")
_CHANGES = pyarrow.struct([(name, _TEXTS) for name in _CHANGE_LEVELS])

SCHEMA = pyarrow.schema(
    [
        ("instance_id", _TEXT),
        ("instance_hash", pyarrow.int64()),
        ("repo", _TEXT),
        ("base_commit", _TEXT),
        ("version", _TEXT),
        ("created_at", _TEXT),
        ("problem_statement", _TEXT),
        ("hints_text", _TEXT),
        ("patch", _TEXT),
        ("test_patch", _TEXT),
        ("FAIL_TO_PASS", _TEXTS),
        ("PASS_TO_PASS", _TEXTS),
        ("use_patch", pyarrow.bool_()),
        ("prompt", pyarrow.list_(pyarrow.struct([("content", _TEXT), ("role", _TEXT)]))),
        ("target", _TEXT),
        ("file_changes", pyarrow.list_(pyarrow.struct([("changes", _CHANGES), ("file", _TEXT)]))),
        ("files", _TEXTS),
        ("modules", _TEXTS),
        ("entities", _TEXTS),
        ("lines", _spans("first", "last")),
        ("hunks", _spans("start", "count")),
        ("added_files", _TEXTS),
        ("skipped", _TEXTS),
        ("unanswerable", pyarrow.bool_()),
        ("empty_levels", _TEXTS),
        ("missing_levels", _TEXTS),
        ("missing", pyarrow.list_(pyarrow.struct([("what", _TEXT), ("why", _TEXT)]))),
        ("extra", _TEXT),
    ]
)
"""Explicit, because a schema inferred from rows would differ between files with different empty columns."""


def dataset_row(row: SourceRow, trees: Trees | None, only: Sequence[str] = ()) -> Row:
    """The row as SCHEMA has it; docs/dataset.md says what each column holds.

    `only`: endings of the files that have to be found; (): all files.

    Raises:
        RowRejected: it lacks an id, a repository, a problem or a patch, or one of them is not usable.

    """
    instance_id = row.text("instance_id")
    problem = row.text("problem_statement", default="")
    if not instance_id.strip():
        raise row.rejected("instance_id is empty")
    if not problem.strip():
        raise row.rejected("problem_statement is empty: there is nothing to ask")
    repo, patch = row.text("repo"), row.text("patch", "gold_patch")
    adds_bug = puts_bug_in(row.fields)
    commit = row.text("base_commit", default="")
    try:
        truth = found_truth(patch, repo=repo, commit=commit, puts_bug_in=adds_bug, trees=trees, suffixes=only)
    except UnreadablePatch as error:
        raise row.rejected(f"patch: {error}") from None
    built: Row = {
        "instance_id": instance_id,
        "instance_hash": instance_hash(instance_id),
        "repo": repo,
        "base_commit": commit or None,
        "version": row.text("version", default="") or None,
        "created_at": row.text("created_at", default="") or None,
        "problem_statement": problem,
        "hints_text": row.text("hints_text", "hints", default="") or None,
        "patch": patch,
        "test_patch": row.text("test_patch", default="") or None,
        "FAIL_TO_PASS": list(row.names("FAIL_TO_PASS", "fail_to_pass")),
        "PASS_TO_PASS": list(row.names("PASS_TO_PASS", "pass_to_pass")),
        "use_patch": adds_bug,
        "prompt": [{"content": problem, "role": "user"}],
        **_truth_columns(truth),
    }
    built["extra"] = _extra(row.fields, built)
    _check(row, built)
    return built


def _truth_columns(truth: Truth) -> Row:
    told = {"modules": truth.modules, "entities": truth.entities}
    return {
        "target": repr([(file, list(hunk)) for file in truth.files for hunk in truth.hunks.get(file, ((0, 0),))]),
        "file_changes": [
            {
                "file": file,
                "changes": {
                    "added_entities": None,
                    "added_modules": None,
                    "edited_entities": _of(file, truth.entities),
                    "edited_modules": _of(file, truth.modules),
                },
            }
            for file in truth.files
        ],
        "files": list(truth.files),
        "modules": _list(truth.modules),
        "entities": _list(truth.entities),
        "lines": _span_rows(truth.lines, "first", "last"),
        "hunks": _span_rows(truth.hunks, "start", "count"),
        "added_files": list(truth.added_files),
        "skipped": list(truth.skipped),
        "unanswerable": truth.unanswerable,
        "empty_levels": [level for level in LEVELS if told[level] == ()],
        "missing_levels": [level for level in LEVELS if told[level] is None],
        "missing": [{"what": what, "why": why} for what, why in truth.missing.items()],
    }


def _list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


def _of(file: str, names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else [name for name in names if name.rpartition(":")[0] == file]


def _span_rows(found: Mapping[str, Spans], first: str, second: str) -> list[Row]:
    return [
        {"file": file, "spans": [{first: one, second: other} for one, other in spans]}
        for file, spans in sorted(found.items())
    ]


def _extra(fields: Mapping[str, object], built: Mapping[str, object]) -> str | None:
    """The source's other columns as JSON; for a row that `dataset build` made, its `extra` unchanged."""
    taken = {*built, "extra", "gold_patch", "hints", "fail_to_pass", "pass_to_pass"}
    left = {name: value for name, value in fields.items() if name not in taken and not name.startswith("__index_")}
    if left:
        return json.dumps(left, sort_keys=True, ensure_ascii=False, default=str)
    kept = fields.get("extra")
    return kept if isinstance(kept, str) else None


def _check(row: SourceRow, built: Row) -> None:
    try:
        json.dumps(built, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise row.rejected("a text holds half of a surrogate pair, which Parquet cannot store") from None
