"""How many values a body of JSON holds: decoding keeps the event loop for some 0.3 µs each, so they are bounded. Pure.

Thirty megabytes of `{},{},` took five seconds, in which no session was served; as much in one text takes 30 ms.
"""

MOST = 200_000
"""Values of one body; what trainers send is some thousands and long texts."""
TOO_MANY = f"The body holds more than {MOST} values; send it in several requests."


_NOWHERE, _TOO_FAR = -1, -2


def may_hold_too_many(body: bytes | bytearray) -> bool:
    """At a glance: there are that many commas in it, be it in texts. Then `holds_too_many` knows."""
    return body.count(b",") > MOST


def holds_too_many(body: bytes | bytearray, *, most_texts: int) -> bool:
    """There are more than `MOST` commas outside of texts, or it is cut into more than `most_texts` by quotes.

    Releases the interpreter again and again, so that it may run in a thread.
    """
    commas, at = 0, 0
    for _ in range(most_texts):
        begin = body.find(b'"', at)
        commas += body.count(b",", at, len(body) if begin < 0 else begin)
        if commas > MOST:
            return True
        end = _closing(body, begin, most_texts) if begin >= 0 else _NOWHERE
        if end == _NOWHERE:
            return False  # the rest is one text, or none
        if end == _TOO_FAR:
            return True
        at = end + 1
    return True


def _closing(body: bytes | bytearray, begin: int, most: int) -> int:
    """Where the text that begins at a quote ends; or it does nowhere, or only past `most` quotes within it."""
    at = begin
    for _ in range(most):
        at = body.find(b'"', at + 1)
        if at < 0:
            return _NOWHERE
        before = at
        while body[before - 1] == 0x5C:  # a backslash
            before -= 1
        if (at - before) % 2 == 0:
            return at
    return _TOO_FAR
