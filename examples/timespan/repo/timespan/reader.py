"""Text to seconds."""

import re

from timespan.units import SECONDS


class BadSpan(ValueError):
    """The text is not a duration."""


_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([dhms])", re.IGNORECASE)
_CLOCK = re.compile(r"(\d+):([0-5]\d)(?::([0-5]\d))?")


def parse(text):
    """Seconds of `"1h 30m"`, `"90m"`, `"1.5h"` or `"1:30"` (hours and minutes) as a float."""
    text = text.strip()
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (int(group or 0) for group in match.groups())
        return float(hours * 3600 + minutes * 60 + seconds)
    position, total = 0, 0.0
    while position < len(text):
        match = _PART.match(text, position)
        if not match:
            raise BadSpan(f"not a duration: {text!r}")
        total += float(match[1]) * SECONDS[match[2].lower()]
        position = match.end()
    if not text:
        raise BadSpan("not a duration: ''")
    return total
