"""Meetings of several people, in minutes since midnight."""

from intervals.merge import gaps, merge


def busy(*calendars):
    """When at least one of them is busy."""
    return merge(meeting for calendar in calendars for meeting in calendar)


def first_free(minutes, *calendars, start=540, end=1020):
    """Start of the first gap of `minutes` that all share, or None."""
    for left, right in gaps(busy(*calendars), start, end):
        if right - left >= minutes:
            return left
    return None
