"""A container's own counters of memory kills, in the kernel's files; only where the engine's host is this one.

A server that is a container itself sees neither the other's processes nor their cgroups: then nothing is known.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Kills:
    """Of one container, since its start."""

    killed: int
    """Its processes that the kernel killed for want of memory, whoever's."""
    at_limit: bool | None
    """It was at its own limit when memory was wanted; None: cgroup version 1, which does not say."""


def kills(pid: int, *, root: Path = Path("/")) -> Kills | None:
    """Of the container whose first process is `pid`; None: not to be seen from here."""
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
        paths = {kind: path for _, kind, path in (line.split(":", 2) for line in lines)}
        if "memory" in paths:
            counters = _counters(root / f"sys/fs/cgroup/memory{paths['memory']}/memory.oom_control")
            return Kills(counters["oom_kill"], None)
        counters = _counters(root / f"sys/fs/cgroup{paths['']}/memory.events")
        return Kills(counters["oom_kill"], counters["oom"] > 0)
    except (OSError, KeyError, ValueError):
        return None


def _counters(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
