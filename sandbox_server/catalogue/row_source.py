"""Determines the repository of a data set row, and what its patch does to it."""

from collections.abc import Mapping

from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.rows import SourceRow

_TRUE = frozenset({"1", "true", "yes"})


def row_source(row: SourceRow, *, commit: str, patch: str = "") -> GitSource:
    """The source that the row names (`source`, or a URL or absolute path), else its `repo`, at `commit`.

    Raises:
        RowRejected: a field has the wrong type.
        ValidationError: the address is not allowed, or `commit` is not a full id.

    """
    given = row.mapping("source")
    if given:
        return GitSource.model_validate({"commit": commit, "patch": patch, **given})
    where = row.text("repository", "repo_url", "clone_url", default="")
    if where.startswith("/"):
        return GitSource(path=where, commit=commit, patch=patch)
    if where:
        return GitSource(url=where, commit=commit, patch=patch)
    return GitSource(repo=row.text("repo"), commit=commit, patch=patch)


def puts_bug_in(fields: Mapping[str, object]) -> bool:
    """Whether the patch adds the bug: by the column `use_patch`, else by the owner of SWE-smith's mirrors."""
    said = fields.get("use_patch")
    if said is None or said == "":
        return str(fields.get("repo")).startswith("swesmith/")
    return str(said).lower() in _TRUE
