"""As `known`, for tests in the languages of `lexing.SUFFIXES`: by their lines and lists."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from sandbox_server.grading.variants.lexing import SUFFIXES
from sandbox_server.grading.variants.repository_tests import Places
from sandbox_server.grading.variants.tokens import Code

_SAYING = 3
"""Fewest words and literals of a line that counts: shorter ones, such as `want: 3`, are repeated by chance."""


class LexedRepositoryTests:
    """The lines of the repository's own test files, and the lists in their tests."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._codes = [Code.of(path, text) for path, text in sorted(files.items()) if path.endswith(SUFFIXES)]
        whole = [range(len(code.tokens)) for code in self._codes]
        self._texts = [code.words(tokens) for code, tokens in zip(self._codes, whole, strict=True)]
        self._lines = {
            code.words(line)
            for code, tokens in zip(self._codes, whole, strict=True)
            for line in _lines(code, tokens, line_ends(files[code.path]))
        }

    def places(self, code: Code, body: range, names: Iterable[str], ends: Sequence[int]) -> Places:
        """The parts of the test in `body` that the repository has too.

        `names`: names of the row's tests that `body` implements; `ends`: the `line_ends` of its file.
        """
        if any(code.words(body) in there for there in self._texts):
            return [_place(code, body)]
        bodies = ((there, its) for there in self._codes for name in names for its in there.bodies(name))
        lists = {there.words(part) for there, its in bodies for part in _lists(there, its)}
        return [
            *(_place(code, line) for line in _lines(code, body, ends) if code.words(line) in self._lines),
            *(_place(code, part) for part in _lists(code, body) if code.words(part) in lists),
        ]


def _place(code: Code, part: range) -> tuple[int, int]:
    return code.tokens[part.start].start, code.tokens[part.stop - 1].end


def line_ends(text: bytes) -> Sequence[int]:
    """Where each line of a file ends."""
    return [found.start() for found in re.finditer(b"\n", text)]


def _lines(code: Code, body: range, ends: Sequence[int]) -> Iterator[range]:
    """The tokens of each line that says enough to be recognised."""
    for _, line in groupby(body, key=lambda at: bisect(ends, code.tokens[at].start)):
        there = list(line)
        if sum(code.tokens[at].kind != "sign" for at in there) >= _SAYING:
            yield range(there[0], there[-1] + 1)


def _lists(code: Code, body: range) -> Iterator[range]:
    """The bracketed lists with several elements."""
    for at in body:
        if at in code.closing and len(code.elements(at)) > 1:
            yield range(at, code.closing[at] + 1)
