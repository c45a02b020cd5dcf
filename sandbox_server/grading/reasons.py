"""Reads why tests failed from logs of pytest, unittest and sympy's runner. Pure.

Only for logs of trusted code (gold, the unpatched tree): other code could print anything.
"""

import re
from collections.abc import Iterable, Mapping

from sandbox_server.grading.variants.cases import is_cut

_PYTEST_BLOCK = re.compile(r"^=+ (?:FAILURES|ERRORS) =+$(.*?)^=+ ", re.MULTILINE | re.DOTALL)
_PYTEST_SECTION = re.compile(r"^_{3,} (.+?) _{3,}$", re.MULTILINE)
_PYTEST_END = re.compile(r"^\S+:\d+: ([A-Za-z_][\w.]*)$", re.MULTILINE)
_PYTEST_SUMMARY = re.compile(r"^FAILED ([^\s\[]+::(?:[^\[\n]+?|[^\s\[]+\[.*?\]))(?: - (.*))?$", re.MULTILINE)
"""A case's id may contain ` - `, which otherwise separates the name from the reason: `test_a[x - y]`."""
_UNITTEST = re.compile(r"^(FAIL|ERROR): (\w+) \([\w.]+\)", re.MULTILINE)
_RULE = re.compile(r"^[=_-]{20,}", re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:E +)?([A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)

_ASSERTIONS = frozenset({"AssertionError", "Failed", "assert", "DocTestFailure"})


def bare(name: str) -> str:
    """The name that logs use for a row's or a unit's test: function and case only."""
    head, bracket, rest = name.partition("[")
    head = head.split(" ")[0].replace("::", ".")
    return re.split(r"[.:]", head)[-1] + bracket + rest


def failures(log: str) -> dict[str, set[str]]:
    """Bare test name -> the exceptions it failed with; {} if the log format is unknown."""
    found: dict[str, set[str]] = {}
    # pytest also shows passed tests in sections, but outside of these blocks; sympy's runner has no blocks.
    for block in _PYTEST_BLOCK.findall(log) or [log]:
        _read_sections(block, found)
    for match in _UNITTEST.finditer(log):
        text = _RULE.split(log[match.end() :].lstrip("\n").partition("\n--")[2].partition("\n")[2])[0]
        names = ["AssertionError"] if match[1] == "FAIL" else _last_exception(text)
        found.setdefault(match[2], set()).update(name.rpartition(".")[2] for name in names[-1:])
    for match in _PYTEST_SUMMARY.finditer(log):
        said = re.match(r"[\w.]+", match[2] or "")
        if (name := bare(match[1])) not in found and said:
            found[name] = {said[0].rpartition(".")[2]}
    return found


def _read_sections(block: str, found: dict[str, set[str]]) -> None:
    sections = list(_PYTEST_SECTION.finditer(block))
    for at, section in enumerate(sections):
        end = sections[at + 1].start() if at + 1 < len(sections) else len(block)
        text = block[section.end() : end]
        names = _PYTEST_END.findall(text) or _last_exception(_RULE.split(text)[0])
        title = section[1].removeprefix("[doctest] ")
        found.setdefault(bare(title), set()).update(name.rpartition(".")[2] for name in names[-1:])


def _last_exception(text: str) -> list[str]:
    names: list[str] = _EXCEPTION.findall(text)
    return [name for name in names if name.rpartition(".")[2][:1].isupper()]


def mentions(log: str, test: str) -> bool:
    """Whether the test's name appears in the log, not as a part of a longer word."""
    return test in log and re.search(rf"(?<!\w){re.escape(test)}(?!\w)", log) is not None


def exceptions_of(found: Mapping[str, set[str]], test: str) -> set[str]:
    """The exceptions that `test` failed with, by `failures`.

    A name without a case stands for all cases of the test, a name cut at a blank for all cases that begin with it.
    """
    name = bare(test)
    begins = f"{name} " if is_cut(name) else f"{name}["
    return {error for seen, errors in found.items() if seen == name or seen.startswith(begins) for error in errors}


def failed_as_expected(log: str, tests: Iterable[str], reasons: Iterable[str]) -> bool:
    """Whether the tests failed by an assertion or one of `reasons`; also True if the log format is unknown."""
    found = failures(log)
    seen = {error for test in tests for error in exceptions_of(found, test)}
    return seen <= _ASSERTIONS.union(reasons) if seen else not found
