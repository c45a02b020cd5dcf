"""SWE-bench Pro: imported so that rollouts can run; its own script and parser are not run by this release."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.instance import SandboxSpec, TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow

_BECAUSE = "SWE-bench Pro is graded by a run_script.sh and parser.py per instance, which this release does not run."
_TAG_LENGTH = 128  # of Docker; the data set's longer tags are published cut


class SwebenchProImporter:
    """Told by the columns that only Pro has."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return "metadata" not in row and ("dockerhub_tag" in row or "selected_test_files_to_run" in row)

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; the lists are Python literals."""
        return (self._instance(row) for row in rows)

    def _instance(self, row: SourceRow) -> TaskInstance:
        image = row.text("image", "image_name", "docker_image", default="")
        return TaskInstance(
            instance_id=row.text("instance_id"),
            dataset=row.text("dataset", default="swebench_pro"),
            repo=row.text("repo"),
            version=row.text("version", default=""),
            base_commit=row.text("base_commit"),
            language=row.text("repo_language", "language", default="python"),
            problem_statement=row.text("problem_statement", default=""),
            sandbox=SandboxSpec(
                images=(image or f"jefzda/sweap-images:{row.text('dockerhub_tag')[:_TAG_LENGTH]}",),
                workdir=row.text("workdir", default="/app"),
            ),
            dialect=row.text("dialect", default="") or None,
            ungradable_because=_BECAUSE,
            test_patch=row.text("test_patch", default=""),
            fail_to_pass=row.names("fail_to_pass", "FAIL_TO_PASS"),
            pass_to_pass=row.names("pass_to_pass", "PASS_TO_PASS"),
            eval_timeout_s=row.number("eval_timeout_s", default=3600.0),
            gold_patch=row.text("patch", default=""),
            row_sha256=row.sha256,
        )


IMPORTER = SwebenchProImporter()
