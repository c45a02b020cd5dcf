"""Limits the number of values in a JSON body, because decoding blocks the event loop for some 0.3 µs each. Pure.

Thirty megabytes of `{},{},` took five seconds, in which no session was served; one string of that size takes 30 ms.
"""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

MOST = 200_000
"""Maximum number of values in one body; trainers send some thousands, among them long strings."""
TOO_MANY = f"The body holds more than {MOST} values; send it in several requests."


_TOLD_FAULTS = 100
_NOWHERE, _TOO_FAR = -1, -2


def faults_of(error: ValidationError) -> list[ErrorDetails]:
    """The faults of a message. More than `_TOLD_FAULTS` become one entry: each takes microseconds to make, and nobody
    reads so many.
    """
    count = error.error_count()
    if count > _TOLD_FAULTS:
        return [{"type": "too_many", "loc": (), "msg": f"{count} of its values are of a wrong kind", "input": None}]
    return error.errors(include_input=False, include_url=False)


def may_hold_too_many(body: bytes | bytearray) -> bool:
    """Quick check: whether there are more than `MOST` commas, inside strings too. If so, `holds_too_many` decides."""
    return body.count(b",") > MOST


def holds_too_many(body: bytes | bytearray, *, most_texts: int) -> bool:
    """Whether `body` has more than `MOST` commas outside of strings, or `most_texts` strings, or as many escaped quotes
    in one string.

    Releases the GIL repeatedly, so it may run on a thread.
    """
    commas, at = 0, 0
    for _ in range(most_texts):
        begin = body.find(b'"', at)
        commas += body.count(b",", at, len(body) if begin < 0 else begin)
        if commas > MOST:
            return True
        end = _closing(body, begin, most_texts) if begin >= 0 else _NOWHERE
        if end == _NOWHERE:
            return False  # the rest is one string or none
        if end == _TOO_FAR:
            return True
        at = end + 1
    return True


def _closing(body: bytes | bytearray, begin: int, most: int) -> int:
    """Index of the quote that ends the string begun at `begin`; _NOWHERE: none; _TOO_FAR: not within `most` quotes."""
    at = begin
    for _ in range(most):
        before, at = at, body.find(b'"', at + 1)
        if at < 0:
            return _NOWHERE
        part = body[before + 1 : at]
        backslashes = len(part) - len(part.rstrip(b"\\"))
        if backslashes % 2 == 0:
            return at
    return _TOO_FAR
