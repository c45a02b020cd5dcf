"""Parses whole numbers sent by clients. Pure.

`int` alone is not enough: it raises ValueError past 4,300 digits and accepts digits of every script, and `isdigit`
accepts `²`.
"""


def is_whole(text: str) -> bool:
    """Whether `text` is ASCII digits only, of any length."""
    return text.isascii() and text.isdigit()


def whole(text: str, most: int) -> int | None:
    """The number, if `text` is ASCII digits and the value at most `most`; else None, whatever the length."""
    if not is_whole(text):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None
