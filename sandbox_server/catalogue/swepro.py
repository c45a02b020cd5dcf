"""SWE-bench Pro's grading data from a row, of the benchmark itself or of slime's copy.

Its tests are in a commit after the base, which only the grader may see.
"""

import re

from sandbox_server.catalogue.instance import SweproGrader, TaskInstance

TESTS_FOLDER = "/var/lib/sandbox/tests"
"""Where a sealed image keeps the tests that were checked out, by their paths; other images do not have it."""

_CHECKOUT = re.compile(r"git checkout [0-9A-Za-z][0-9A-Za-z._/^~-]* (?:-- )?[^-\s].*")


def tests_checkout(before_repo_set_cmd: str) -> str:
    """The last line, if it checks the tests out of a later commit as the benchmark's harness does; else ""."""
    last = before_repo_set_cmd.strip().rpartition("\n")[2].strip()
    return last if _CHECKOUT.fullmatch(last) else ""


def swepro_grader(
    *, run_script: str, parser_script: str, selected_test_files: tuple[str, ...], before_repo_set_cmd: str
) -> SweproGrader:
    """The grader; if the last line of `before_repo_set_cmd` checks tests out, they are placed over the patch."""
    return SweproGrader(
        run_script=run_script,
        parser_script=parser_script,
        selected_test_files=selected_test_files,
        restore_tests=tests_checkout(before_repo_set_cmd),
    )


def tests_checkout_of(instance: TaskInstance) -> str:
    """Shell text that checks the tests of `instance` out of a later commit; "" if there is none."""
    return instance.grader.restore_tests if isinstance(instance.grader, SweproGrader) else ""


def setup_commands(instance: TaskInstance) -> tuple[str, ...]:
    """The instance's setup commands, without a last line that would put the tests into the tree."""
    tests = tests_checkout_of(instance)
    commands = instance.sandbox.setup_commands
    return tuple(_without_last(command, tests) for command in commands) if tests else commands


def _without_last(command: str, line: str) -> str:
    rest, _, last = command.rstrip().rpartition("\n")
    return rest if last.strip() == line else command
