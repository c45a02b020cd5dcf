"""Reads a container's memory kill counters from the kernel's files, if the engine runs on this host.

A server that runs in a container itself sees neither the other container's processes nor their cgroups, so it knows
nothing.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Kills:
    """Memory kills in one container since its start."""

    killed: int
    """Number of its processes that the kernel killed for lack of memory, the container's or the host's."""
    at_limit: bool | None
    """Whether it was at its own limit when memory ran out; None for cgroup version 1, which does not report it."""


def kills(pid: int, *, root: Path = Path("/")) -> Kills | None:
    """Counters of the container whose first process is `pid`; None if they are not visible from here."""
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
