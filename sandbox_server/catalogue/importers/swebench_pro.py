"""SWE-bench Pro: graded by the run_script.sh and parser.py of each instance, if these files are next to the rows."""

from collections.abc import Iterator, Mapping, Sequence

from sandbox_server.catalogue.instance import SandboxSpec, SweproGrader, TaskInstance
from sandbox_server.catalogue.rows import OldRowConverter, SourceRow
from sandbox_server.catalogue.swepro import swepro_grader, tests_checkout

_TAG_LENGTH = 128  # Docker's limit; the data set's longer tags are published truncated


class SwebenchProImporter:
    """Recognised by the columns that only Pro has."""

    general = False

    def matches(self, row: Mapping[str, object]) -> bool:
        """See `Importer`."""
        return "metadata" not in row and ("dockerhub_tag" in row or "selected_test_files_to_run" in row)

    def convert(self, rows: Sequence[SourceRow], converter: OldRowConverter) -> Iterator[TaskInstance]:
        """See `Importer`; the lists are Python literals."""
        return (self._instance(row) for row in rows)

    def _instance(self, row: SourceRow) -> TaskInstance:
        image = row.text("image", "image_name", "docker_image", default="")
        fail_to_pass = row.names("fail_to_pass", "FAIL_TO_PASS")
        grader, because = _grader(row)
        if grader and not fail_to_pass:
            grader, because = None, "fail_to_pass is empty, so doing nothing would count as resolved."
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
            grader=grader,
            ungradable_because=because,
            test_patch=row.text("test_patch", default=""),
            fail_to_pass=fail_to_pass,
            pass_to_pass=row.names("pass_to_pass", "PASS_TO_PASS"),
            eval_timeout_s=row.number("eval_timeout_s", default=3600.0),
            gold_patch=row.text("patch", default=""),
            row_sha256=row.sha256,
        )


def _grader(row: SourceRow) -> tuple[SweproGrader | None, str]:
    """The grader, or why there is none. Only the last line of the row's command is used: it adds the tests."""
    folder = f"run_scripts/{row.text('instance_id')}"
    if not (row.folder / folder).is_dir():
        return None, f"There is no {folder} beside the file: copy run_scripts of the benchmark's repository there."
    command = row.text("before_repo_set_cmd", default="").strip()
    if command and not tests_checkout(command):
        return None, f"before_repo_set_cmd does not end in a checkout of test files: {command[-100:]!r}."
    grader = swepro_grader(
        run_script=row.file_text(f"{folder}/run_script.sh"),
        parser_script=row.file_text(f"{folder}/parser.py"),
        selected_test_files=row.names("selected_test_files_to_run"),
        before_repo_set_cmd=command,
    )
    return grader, ""


IMPORTER = SwebenchProImporter()
