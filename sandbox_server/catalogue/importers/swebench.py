"""SWE-bench (full, Lite, Verified, Multilingual), rows of 5.x and older, and rows of that shape with our own keys."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.benchmark_rows import benchmark_instance, has_own_command, is_complete
from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.catalogue.rebench import completed
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow, Unconvertible


class SwebenchImporter:
    """Also takes rows of unknown data sets that look like SWE-bench: gradable if the row says how."""

    general = True

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return {"instance_id", "repo", "test_patch"} <= row.keys() and not row.keys().isdisjoint(
            ("FAIL_TO_PASS", "fail_to_pass")
        )

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; all rows without a script of any kind go through the library at once."""
        by_config = {row.line: completed(row) for row in rows if not has_own_command(row) and not is_complete(row)}
        old = [row for row in rows if row.line in by_config and by_config[row.line] is None]
        answers = {row.line: answer for row, answer in zip(old, converter.convert(old), strict=True)}
        answers |= {line: found for line, found in by_config.items() if isinstance(found, Unconvertible)}
        whole = {line: found for line, found in by_config.items() if isinstance(found, SourceRow)}
        no_answer = Unconvertible("")  # for rows that need no answer
        return (
            benchmark_instance(
                whole.get(row.line, row),
                dataset="swebench",
                images=_images(row.text("instance_id"), "swerebench" if row.line in whole else "swebench"),
                otherwise=answers.get(row.line, no_answer),
            )
            for row in rows
        )


def _images(instance_id: str, namespace: str) -> tuple[str, ...]:
    """As published, the same without its namespace, and as the benchmark's local build names it."""
    name = f"sweb.eval.x86_64.{instance_id.lower()}:latest"
    published = name.replace("__", "_1776_")
    return f"{namespace}/{published}", published, name


IMPORTER = SwebenchImporter()
