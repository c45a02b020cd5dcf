"""Code search: rows with a repository and a commit but no image, and SWE-smith's rows, whose patch adds the bug."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.catalogue.row_source import puts_bug_in, row_source
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow

_BECAUSE = "The row names what to search in, but nothing that an answer could be held against."
_SMITH = (
    "SWE-smith's own harness chooses how its tests run, by a profile of each repository; code search needs no tests."
)


class LocalizationImporter:
    """Recognised by the columns of a row that cannot be run: repository and commit (or `use_patch`), but no tests."""

    general = True

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        if "sandbox" in row or "metadata" in row or not {"instance_id", "repo"} <= row.keys():
            return False
        return puts_bug_in(row) or ({"base_commit", "patch"} <= row.keys() and "test_patch" not in row)

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`."""
        return (self._instance(_with_extra(row), row.sha256) for row in rows)

    def _instance(self, row: SourceRow, sha256: str) -> TaskInstance:
        patch = row.text("patch", default="")
        adds_bug = puts_bug_in(row.fields)
        if adds_bug and not patch.strip():
            raise row.rejected("its patch should bring the bug (use_patch, SWE-smith), and there is none")
        commit = row.text("base_commit", default="")
        image = row.text("image", default="")  # SWE-smith's `image_name` has a repository of its own
        return TaskInstance(
            instance_id=row.text("instance_id"),
            dataset=row.text("dataset", default="localization"),
            repo=row.text("repo"),
            version=row.text("version", default=""),
            base_commit=commit,
            language=row.text("language", default="python"),
            problem_statement=row.text("problem_statement", default=""),
            hints=row.text("hints_text", "hints", default=""),
            sandbox=SandboxSpec(
                images=(image,) if image else (),
                source=row_source(row, commit=commit, patch=patch if adds_bug else ""),
                workdir=row.text("workdir", default="/testbed"),
            ),
            dialect=row.text("dialect", default="") or None,
            profile=row.text("profile", default="") or None,
            ungradable_because=_SMITH if row.text("repo").startswith("swesmith/") else _BECAUSE,
            gold_patch="" if adds_bug else patch,
            row_sha256=sha256,
        )


def _with_extra(row: SourceRow) -> SourceRow:
    """With the columns that `dataset build` has no place for, which it keeps in one."""
    if not {"instance_hash", "extra"} <= row.fields.keys():
        return row
    own = {name: value for name, value in row.fields.items() if value is not None}
    return SourceRow(row.line, {**row.mapping("extra"), **own}, row.folder)


IMPORTER = LocalizationImporter()
