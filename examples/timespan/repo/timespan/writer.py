"""Seconds to text."""

from timespan.units import UNITS


def compact(seconds):
    """`"1h 30m"`: whole seconds, no empty units."""
    parts = []
    rest = seconds
    for unit, size in UNITS[:-1]:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{int(count)}{unit}")
    if round(rest):
        parts.append(f"{round(rest)}s")
    return " ".join(parts) or "0s"


def clock(seconds):
    """`"1:30:00"`."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
