"""The host's available memory."""

from pathlib import Path


def available_mb() -> int | None:
    """Memory available without swapping, in MiB, by the kernel's estimate; None if the kernel does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:")), None)
