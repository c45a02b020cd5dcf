"""SWE-PolyBench: SWE-bench's columns with F2P, P2P, a test command and a Dockerfile; its log parsers are its own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sandbox_server.catalogue.benchmark_rows import benchmark_instance
from sandbox_server.catalogue.harbor import dockerfile
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow, Unconvertible

_OWN = Unconvertible("SWE-PolyBench is graded by log parsers of its own; give the row log_parser to grade it.")


class PolyBenchImporter:
    """Recognised by F2P, P2P and the test command."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return {"instance_id", "F2P", "P2P", "test_command"} <= row.keys()

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; with a `log_parser` the row's own command runs its tests."""
        return (_instance(row) for row in rows)


def _instance(row: SourceRow) -> TaskInstance:
    file = row.text("Dockerfile", "dockerfile", default="")
    own = {
        "FAIL_TO_PASS": list(row.names("F2P")),
        "PASS_TO_PASS": list(row.names("P2P")),
        "workdir": dockerfile.read(file).workdir or "/testbed",
        **({"test_cmd": row.text("test_command")} if row.fields.get("log_parser") else {}),
    }
    known = {name: value for name, value in row.fields.items() if value is not None}
    language = row.text("language", default="").lower()
    image = f"ghcr.io/timesler/swe-polybench.eval.x86_64.{row.text('instance_id').lower()}:latest"
    whole = replace(row, fields={**own, **known, "language": language})
    made = benchmark_instance(whole, dataset="swe-polybench", images=(image,), otherwise=_OWN)
    return made.model_copy(update={"row_sha256": row.sha256})


IMPORTER = PolyBenchImporter()
