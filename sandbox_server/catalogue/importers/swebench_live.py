"""SWE-bench-Live: SWE-bench's columns, its own images, and `test_cmds` with the parser of their log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sandbox_server.catalogue.benchmark_rows import benchmark_instance
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow, Unconvertible

_CODE = Unconvertible(
    "SWE-bench-Live reads its log by Python code in the row, which this service does not run; give the row test_cmd"
    " and one of swebench's parsers as log_parser to grade it."
)
_PARSERS = {"pytest": "parse_log_pytest"}
"""Its name -> swebench's, of which it is a copy."""


class SwebenchLiveImporter:
    """Recognised by the list of commands."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return {"instance_id", "repo", "test_patch", "test_cmds"} <= row.keys()

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`."""
        return (
            benchmark_instance(
                _completed(row), dataset="swebench-live", images=(_image(row.text("instance_id")),), otherwise=_CODE
            )
            for row in rows
        )


def _completed(row: SourceRow) -> SourceRow:
    """The row with our own keys, if its log has a parser of swebench's."""
    parser = _PARSERS.get(row.text("log_parser", "parser", default="").strip().lower())
    if row.fields.get("test_cmd") is not None or parser is None or row.names("print_cmds"):
        return row
    own = {
        "test_cmd": list(row.names("test_cmds")),
        "log_parser": parser,
        "install": "\n".join(row.names("rebuild_cmds")),
    }
    return replace(row, fields={**row.fields, **own})


def _image(instance_id: str) -> str:
    return f"starryzhang/sweb.eval.x86_64.{instance_id.lower().replace('__', '_1776_')}:latest"


IMPORTER = SwebenchLiveImporter()
