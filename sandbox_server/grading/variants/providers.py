"""The rows of PHPUnit's data providers, by the names of their tests. Pure.

A misreading only costs variants: each variant is tried with gold before it is used.
"""

import re
from collections.abc import Iterator

from sandbox_server.grading.variants.tokens import Code

_DATA_SET = re.compile(r' with (?:data set )?(?:#(\d{1,6})|"(.*)")$', re.DOTALL)
_EXPECTED = re.compile(r"(?i)\$(?:want\w*|expect\w*|exp|out|output|result)")
_LOOPS = frozenset({"for", "foreach", "while"})


def expected_of(code: Code, name: str) -> range | None:
    """The tokens of the expected value in the row of test `name`; None if there is no such value, or several may be it.

    That is the value of a parameter with a name like `$expected`, else of the last parameter.
    """
    found = _DATA_SET.search(name)
    provided = code.provided(name)
    if found is None or len(provided) != 1:
        return None
    method, body = provided[0]
    number, key = found.groups()
    rows = [opening for at, said, opening in _rows(code, body) if (said == key if key is not None else at == number)]
    parameters = _parameters(code, method)
    if len(rows) != 1 or len(parameters) < 2:
        return None
    named = [parameter for parameter in parameters if _EXPECTED.fullmatch(parameter)]
    wanted = named[0] if named else parameters[-1]
    values = _values(code, rows[0])
    by_place = [value for key, value in values if key is None][parameters.index(wanted) :]
    return next((value for value in (dict(values).get(wanted[1:]), *by_place) if value is not None), None)


def _rows(code: Code, body: range) -> Iterator[tuple[str, str | None, int]]:
    """(number, key, its opening bracket) of each row that is returned or yielded; number "" if it has a key."""
    loops = any(code.text(at) in _LOOPS for at in body)
    count = 0
    for row in _listed(code, body):
        key, value = _keyed(code, row)
        opening = value.start + 1 if code.text(value.start) == "array" else value.start
        if opening in code.closing:
            yield "" if key is not None or loops else str(count), key, opening
        count += key is None


def _listed(code: Code, body: range) -> Iterator[range]:
    for at in body:
        if code.text(at) == "yield":
            end = at + 1
            while end < body.stop and code.text(end) != ";":
                end = code.closing.get(end, end) + 1
            yield range(at + 1, end)
        elif code.text(at) == "return":
            opening = at + 2 if code.text(at + 1) == "array" else at + 1
            yield from (row for row in (code.elements(opening) if opening in code.closing else ()) if row)


def _values(code: Code, opening: int) -> list[tuple[str | None, range]]:
    return [_keyed(code, value) for value in code.elements(opening) if value]


def _keyed(code: Code, part: range) -> tuple[str | None, range]:
    """The key of `'key' => value`, None if there is none, and the value."""
    if code.text(part.start + 1) != "=>" or part.start + 2 >= part.stop:
        return None, part
    return re.sub(r"\\(.)", r"\1", code.text(part.start)[1:-1]), part[2:]


def _parameters(code: Code, method: str) -> list[str]:
    for at in code.places.get(method, ()):
        if code.text(at - 1) == "function" and at + 1 in code.closing:
            parts = (code.tokens[part.start : part.stop] for part in code.elements(at + 1))
            names = (next((token.text for token in part if token.text[:1] == "$"), "") for part in parts)
            return [name for name in names if name]
    return []
