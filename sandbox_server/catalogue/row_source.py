"""Which repository a row of a data set means."""

from sandbox_server.catalogue.instance import GitSource
from sandbox_server.catalogue.rows import SourceRow


def row_source(row: SourceRow, *, commit: str, patch: str = "") -> GitSource:
    """What the row names itself (`source`, or a URL or absolute path), else its `repo`, at `commit`.

    Raises:
        RowRejected: one of the fields is of the wrong kind.
        ValidationError: no repository may be taken from there, or `commit` is no full id.

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
