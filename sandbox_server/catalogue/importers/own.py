"""Our own schema: a row is a TaskInstance, field by field."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow


class OwnImporter:
    """Recognised by the column `sandbox`, which no other family has."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return "sandbox" in row and "instance_id" in row

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; an instance without a grader gets a reason if it names none."""
        return (self._instance(row) for row in rows)

    def _instance(self, row: SourceRow) -> TaskInstance:
        fields = {"row_sha256": row.sha256, **row.fields}
        if fields.get("grader") is None and fields.get("localization") is not None:
            fields["grader"] = {"kind": "localization"}
        if fields.get("grader") is None:
            fields["ungradable_because"] = fields.get("ungradable_because") or "The row names no grader."
        instance = TaskInstance.model_validate(fields)
        if not instance.sandbox.images and instance.sandbox.source is None:
            raise row.rejected("sandbox.images is empty, and there is no sandbox.source to make an image of")
        return instance


IMPORTER = OwnImporter()
