"""Merging half-open intervals and finding the gaps between them."""


def merge(intervals):
    """The fewest intervals that cover the same numbers, sorted; empty ones (`start >= end`) are dropped."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def gaps(intervals, start, end):
    """What `intervals` leave free of `[start, end)`."""
    free = []
    for left, right in merge(intervals):
        if left > start:
            free.append((start, left))
        start = right
    if start < end:
        free.append((start, end))
    return free
