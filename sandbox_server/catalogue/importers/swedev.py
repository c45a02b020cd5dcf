"""THUDM SWE-Dev: SWE-bench's columns, generated tests in new files, no published images and no known parser."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.benchmark_rows import benchmark_instance
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow, Unconvertible

_NO_RECIPE = Unconvertible(
    "SWE-Dev publishes neither images nor how its tests run; give the row image, test_cmd and log_parser to grade it."
)


class SwedevImporter:
    """Recognised by generated tests, the version 0.0 that its formatter writes, or trajectories beside the tasks."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        formatted = str(row.get("version")) == "0.0" and row.get("environment_setup_commit") == ""
        generated = "swedev_test_" in str(row.get("test_patch", ""))
        return "metadata" not in row and (
            "traj_id" in row or isinstance(row.get("test"), list) or ("repo" in row and (formatted or generated))
        )

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; a row that names no image cannot be started."""
        return (self._instance(row) for row in rows)

    def _instance(self, row: SourceRow) -> TaskInstance:
        if "traj_id" in row.fields:
            raise row.rejected("a trajectory of SWE-Dev, not a task: import the set's tasks instead")
        return benchmark_instance(row, dataset="swedev", images=(), otherwise=_NO_RECIPE)


IMPORTER = SwedevImporter()
