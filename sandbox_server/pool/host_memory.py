"""How much memory this host could still give."""

from pathlib import Path


def available_mb() -> int | None:
    """Without swapping, as the kernel sees it; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:")), None)
