"""Finds out which tests an altered file of data makes false."""

from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import replace

from sandbox_server.grading.base import TestRun
from sandbox_server.grading.reasons import failed_as_expected, mentions
from sandbox_server.grading.variants.base import Unit
from sandbox_server.verdicts import VerdictName


async def units_of_data(
    candidates: Iterable[Unit],
    wanted: Set[str],
    always: Set[str],
    in_log: Set[str],
    gold: Callable[[Unit], Awaitable[TestRun | None]],
) -> list[Unit]:
    """The usable candidates, each with the tests that gold fails under it by an assertion.

    Candidates of one file that make the same tests fail become one unit; no two units share a test. `wanted`: tests
    that may fail; `always`: tests that gold passes; `in_log`: tests that gold's log names. `gold` runs gold under a
    candidate, or returns None to end the search.
    """
    found: dict[frozenset[str], Unit] = {}
    for candidate in candidates:
        run = await gold(candidate)
        if run is None:
            break
        failed = frozenset(always - run.passed)
        if run.name is not VerdictName.UNRESOLVED or not failed or not failed <= wanted:
            continue
        if not (failed_as_expected(run.log, failed, ()) and all(mentions(run.log, test) for test in failed & in_log)):
            continue
        if failed in found and found[failed].path == candidate.path:
            found[failed] = found[failed].with_variants((*found[failed].variants, *candidate.variants))
        elif not any(failed & tests for tests in found):
            found[failed] = replace(candidate, tests=tuple(sorted(failed)))
    return list(found.values())
