"""The lines of a test log that belong to each failed test, for people.

A runner prints a report of each failure under a heading with the test's name. Known are the headings of pytest,
unittest and Django, Go, Rust, and jest. Besides, every line that contains a test's whole name belongs to it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from sandbox_server.slices import sliced

_READ = 1 << 20  # characters from the end of the log, where runners print their reports
_TESTS = 20
_TEXT = 1_500  # characters about one test
_LINE = 500
_MENTIONS = 3

_HEADING = re.compile(
    r"_{3,} (?P<pytest>.+?) _{3,}$"
    r"|(?:FAIL|ERROR): (?P<unittest>.+)$"
    r"|\s*--- FAIL: (?P<go>\S+)"
    r"|---- (?P<rust>\S+) stdout ----$"
    r"|\s*● (?P<jest>.+)$"
)
_BEGINS = frozenset("_FE- \t●")
"""First characters of headings: a quick test, because most lines are no headings."""
_OVER = re.compile(r"={5,}|\s*--- (?:PASS|SKIP): |=== (?:RUN|CONT|PAUSE) |(?:ok|FAIL)\t|failures:$|Ran \d+ tests? in ")
"""A line that ends a report without beginning another."""


async def excerpts(log: str, failed: Sequence[str]) -> Mapping[str, str]:
    """Failed test -> its lines, at most 1,500 characters; for the first twenty tests, if the log names them."""
    reading = _Reading(log, failed[:_TESTS])
    await sliced(reading.steps())
    return reading.found()


class _Reading:
    """Collects the lines of each test, one line of the log at a time, so that the event loop can do other work."""

    def __init__(self, log: str, failed: Sequence[str]) -> None:
        self._log = log[-_READ:]
        self._failed = list(failed)
        self._titles: dict[str, list[str]] = {}
        """Heading -> the tests that it may stand for."""
        for test in self._failed:
            for title in _titles(test):
                self._titles.setdefault(title, []).append(test)
        self._reports: dict[str, list[str]] = {test: [] for test in self._failed}

    def steps(self) -> Iterator[None]:
        """Read the log: one line, or one search for a test's name, in each step."""
        owners: list[str] = []
        for line in self._log.splitlines() if self._failed else ():
            owners = self._owners(line, owners)
            for test in owners:
                self._reports[test].append(line)
            yield
        for test in self._failed:
            known = set(self._reports[test])
            found = [line for line in _mentions(self._log, test) if line not in known]
            self._reports[test] += found
            yield

    def found(self) -> Mapping[str, str]:
        """Test -> its lines."""
        return {test: _shortened("\n".join(lines)) for test, lines in self._reports.items() if lines}

    def _owners(self, line: str, owners: list[str]) -> list[str]:
        """The tests that this line is about; `owners`: those of the line before."""
        if line[:1] in _BEGINS and (heading := _HEADING.match(line[:_LINE])):
            title = str(heading[heading.lastgroup or 0]).strip()
            # the library cuts names at the first space
            return self._titles.get(title) or self._titles.get(title.partition(" ")[0], [])
        return [] if owners and _OVER.match(line) else owners


def _titles(test: str) -> set[str]:
    """The names that a runner may put over the report of this test."""
    within = test.rpartition(".py::")[2]  # pytest: Class.test[parameters]
    return {test, within.replace("::", "."), within.rpartition("::")[2]}


def _mentions(log: str, test: str) -> Iterator[str]:
    """The first few lines that contain the test's name."""

    def lines() -> Iterator[str]:
        at = log.find(test)
        while at >= 0:
            begin, end = log.rfind("\n", 0, at) + 1, log.find("\n", at)
            end = len(log) if end < 0 else end
            yield log[max(begin, at - _LINE) : min(end, at + len(test) + _LINE)]
            at = log.find(test, end)

    return islice(lines(), _MENTIONS)


def _shortened(text: str) -> str:
    """The beginning and the end, which names the error."""
    return text if len(text) <= _TEXT else f"{text[: _TEXT // 4]}\n…\n{text[-_TEXT * 3 // 4 :]}"
