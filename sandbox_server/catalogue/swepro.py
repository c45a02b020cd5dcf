"""SWE-bench Pro's way of grading, out of a row: of the benchmark itself, or of slime's copy of it."""

import re

from sandbox_server.catalogue.instance import SweproGrader

_CHECKOUT = re.compile(r"git checkout [0-9A-Za-z][0-9A-Za-z._/^~-]* (?:-- )?[^-\s].*")


def tests_checkout(before_repo_set_cmd: str) -> str:
    """Its last line, where that takes the tests out of a later commit, as the benchmark's harness runs it; else ""."""
    last = before_repo_set_cmd.strip().rpartition("\n")[2].strip()
    return last if _CHECKOUT.fullmatch(last) else ""


def swepro_grader(
    *, run_script: str, parser_script: str, selected_test_files: tuple[str, ...], before_repo_set_cmd: str
) -> SweproGrader:
    """The grader; the tests are put over the patch by the last line of `before_repo_set_cmd` if that does so."""
    return SweproGrader(
        run_script=run_script,
        parser_script=parser_script,
        selected_test_files=selected_test_files,
        restore_tests=tests_checkout(before_repo_set_cmd),
    )
