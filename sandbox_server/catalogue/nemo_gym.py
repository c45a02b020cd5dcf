"""Rows of NeMo Gym (Nemotron): another data set's row, in an envelope of what its agent is asked."""

from collections.abc import Mapping
from dataclasses import replace

from sandbox_server.catalogue.rows import SourceRow

ENVELOPE = "responses_create_params"
_INNER = "instance_dict"


def unwrapped_row(row: SourceRow) -> SourceRow:
    """The row in the envelope, or the row itself if it has none.

    Raises:
        RowRejected: the envelope cannot be read, or holds no row.
    """
    if ENVELOPE not in row.fields:
        return row
    asked = replace(row, fields=row.mapping(ENVELOPE))
    said = replace(row, fields=asked.mapping("metadata"))
    inner: Mapping[str, object] = said.mapping(_INNER)
    if not inner:
        raise row.rejected(f"{ENVELOPE}.metadata has no {_INNER}, so nothing says how the answer is graded")
    # what the envelope adds: the same names, where the inner row left them out
    known = ("instance_id", "base_commit", "problem_statement")
    added = {name: said.fields[name] for name in known if said.fields.get(name) and inner.get(name) is None}
    return replace(row, fields={**inner, **added})
