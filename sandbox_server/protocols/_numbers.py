"""Whole numbers that a client spells. Pure.

`int` alone is not enough: past 4,300 digits it raises ValueError, `isdigit` is true of `²`, and digits of every script
are numbers to it.
"""


def is_whole(text: str) -> bool:
    """It is spelled in ASCII digits, as many as there may be."""
    return text.isascii() and text.isdigit()


def whole(text: str, most: int) -> int | None:
    """The number, in ASCII digits, if it is at most `most`; else None, however long the text is."""
    if not is_whole(text):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None
