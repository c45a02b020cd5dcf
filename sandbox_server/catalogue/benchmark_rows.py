"""Rows in the format of SWE-bench, shared by its data set, SWE-Gym and SWE-Dev.

docs/instances.md lists the additional keys of ours that such a row may have.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.catalogue.eval_script import make_eval_script, split
from sandbox_server.catalogue.instance import CodeTask, SandboxSpec, SwebenchGrader, TaskInstance
from sandbox_server.catalogue.log_parsers import LOG_PARSERS
from sandbox_server.catalogue.rows import Converted, SourceRow, Unconvertible


@dataclass(frozen=True, slots=True)
class Grading:
    """How a row is graded, or why it cannot be."""

    grader: SwebenchGrader | None
    ungradable_because: str = ""
    conversion: str = ""


def has_own_command(row: SourceRow) -> bool:
    """Whether the row names its test command, from which we make its script."""
    return row.fields.get("test_cmd") is not None


def is_complete(row: SourceRow) -> bool:
    """Whether the row has the benchmark's script, as rows of swebench 5.x do."""
    return bool(row.fields.get("eval_script")) and bool(row.fields.get("log_parser"))


def benchmark_instance(
    row: SourceRow, *, dataset: str, images: Sequence[str], otherwise: Converted | Unconvertible
) -> TaskInstance:
    """The instance of a row; `images` are the data set's own names for its image.

    `otherwise` is used if the row has neither a test command nor a script.

    Raises:
        RowRejected, pydantic.ValidationError: the row is unusable.

    """
    fail_to_pass = row.names("FAIL_TO_PASS", "fail_to_pass")
    grading = _grading(row, otherwise, fail_to_pass)
    given = _given_image(row)
    # A row with its own command belongs to no benchmark, so its image is not published under a benchmark's names.
    candidates = given if given and has_own_command(row) else (*given, *images)
    code = row.mapping("code")
    return TaskInstance(
        instance_id=row.text("instance_id"),
        dataset=row.text("dataset", default=dataset),
        repo=row.text("repo"),
        version=row.text("version", default=""),
        base_commit=row.text("base_commit", default=""),
        language=row.text("language", default="python"),
        problem_statement=row.text("problem_statement", default=""),
        hints=row.text("hints_text", "hints", default=""),
        sandbox=SandboxSpec(
            images=tuple(dict.fromkeys(candidates)),
            workdir=row.text("workdir", default="/testbed"),
            activate=row.text("activate", default=""),
        ),
        dialect=row.text("dialect", default="") or None,
        profile=row.text("profile", default="") or None,
        code=CodeTask.model_validate(code) if code else None,
        grader=grading.grader,
        ungradable_because=grading.ungradable_because,
        test_patch=row.text("test_patch", default=""),
        fail_to_pass=fail_to_pass,
        pass_to_pass=row.names("PASS_TO_PASS", "pass_to_pass"),
        eval_timeout_s=row.number("eval_timeout_s", default=1800.0),
        gold_patch=row.text("patch", "gold_patch", default=""),
        row_sha256=row.sha256,
        conversion=grading.conversion,
    )


def _given_image(row: SourceRow) -> tuple[str, ...]:
    image = row.text("image", "image_name", "docker_image", default="")
    return (image,) if image else ()


def _grading(row: SourceRow, otherwise: Converted | Unconvertible, fail_to_pass: Sequence[str]) -> Grading:
    recipe = _recipe(row, otherwise)
    if isinstance(recipe, Unconvertible):
        return Grading(None, recipe.because)
    if not fail_to_pass:
        return Grading(None, "FAIL_TO_PASS is empty, so doing nothing would count as resolved.")
    if row.mapping("image_assets").get("test_patch"):
        return Grading(None, "Its tests need image assets, which are fetched from the network while it is graded.")
    if recipe.log_parser not in LOG_PARSERS:
        raise row.rejected(f"log_parser {recipe.log_parser!r} is none of swebench's (parse_log_pytest and others)")
    try:
        split(recipe.eval_script)
    except ValueError as error:
        return Grading(None, f"Its eval_script does not say which output is the tests': {error}.")
    grader = SwebenchGrader.model_validate(
        {
            "eval_script": recipe.eval_script,
            "log_parser": recipe.log_parser,
            "eval_type": recipe.eval_type,
            "new_test_files": row.test_files().new,
        }
    )
    return Grading(grader, conversion=recipe.library)


def _recipe(row: SourceRow, otherwise: Converted | Unconvertible) -> Converted | Unconvertible:
    if has_own_command(row):
        if row.fields.get("log_parser") is None:
            raise row.rejected("test_cmd needs log_parser, the name of the parser of its log (parse_log_pytest, ...)")
        script = _own_script(row)
    elif is_complete(row):
        script = row.text("eval_script")
    else:
        return otherwise
    return Converted(script, row.text("log_parser"), row.text("eval_type", default="pass_and_fail"), library="")


def _own_script(row: SourceRow) -> str:
    test_cmd = row.fields["test_cmd"]
    try:
        return make_eval_script(
            workdir=row.text("workdir", default="/testbed"),
            base_commit=row.text("base_commit", default=""),
            test_patch=row.text("test_patch", default=""),
            files=row.test_files(),
            test_cmd=test_cmd if isinstance(test_cmd, str) else row.names("test_cmd"),
            activate=row.text("activate", default=""),
            install=row.text("install", default=""),
        )
    except ValueError as error:
        raise row.rejected(str(error)) from None
