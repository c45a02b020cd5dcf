"""Reads a container's counters and limits from the kernel's files, and thaws it, if the engine runs on this host.

A server that runs in a container itself sees no other container's processes, and their control groups only where the
host's are mounted (docker-compose.yml does so).
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CANDIDATES = 8  # processes looked at for a container's first one, which is usually the first
_GROUPS = ("docker/{}", "system.slice/docker-{}.scope", "{}")
"""A container's group: by default with cgroupfs and with systemd, and with `dockerd --cgroup-parent=/`."""
_CPU_FILES = tuple(
    f"sys/fs/cgroup/{controllers}{group}/{file}"
    for controllers, file in (("", "cpu.stat"), ("cpuacct/", "cpuacct.usage"), ("cpu,cpuacct/", "cpuacct.usage"))
    for group in _GROUPS
)
"""For `cpu_s`: control groups of version 2 and 1."""

_FREEZERS = tuple(
    (f"sys/fs/cgroup/{controller}{group}/{file}", thawed)
    for controller, file, thawed in (("", "cgroup.freeze", "0"), ("freezer/", "freezer.state", "THAWED"))
    for group in ("{}", "*/{}", "*/docker-{}.scope")
)
"""(path of a group's freezer switch below whatever parent the engine uses, content while the processes run)."""

_UPPER = re.compile(r"^\S+ \S+ \S+ / / .* - overlay \S+ (?:\S*,)?upperdir=([^\\,\s]+)(?:,|$)", re.MULTILINE)
"""The root's line in a list of mounts. It does not match a folder whose name the kernel escapes."""


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
        paths = _paths(pid, root)
        if "memory" in paths:
            counters = _counters(root / f"sys/fs/cgroup/memory{paths['memory']}/memory.oom_control")
            return Kills(counters["oom_kill"], None)
        counters = _counters(root / f"sys/fs/cgroup{paths['']}/memory.events")
        return Kills(counters["oom_kill"], counters["oom"] > 0)
    except (OSError, KeyError, ValueError):
        return None


def memory_limit(pid: int, *, root: Path = Path("/")) -> int | None:
    """Limit in bytes of the container whose first process is `pid`; None: there is none, or it is not visible here."""
    with suppress(OSError, KeyError, ValueError):  # ValueError also for version 2's `max`
        paths = _paths(pid, root)
        if "memory" in paths:
            return int((root / f"sys/fs/cgroup/memory{paths['memory']}/memory.limit_in_bytes").read_text())
        return int((root / f"sys/fs/cgroup{paths['']}/memory.max").read_text())
    return None


def cpu_file(pid: int, container_id: str, *, root: Path = Path("/")) -> Path | None:
    """The file for `cpu_s` of the container whose first process is `pid`; None if it is not visible from here."""
    try:
        paths = _paths(pid, root)
    except (OSError, ValueError):
        return None
    for controllers, path in paths.items():
        if container_id not in path:  # another process has that number here
            continue
        if "cpuacct" in controllers.split(","):
            file = root / f"sys/fs/cgroup/{controllers}{path}/cpuacct.usage"
        elif not controllers:
            file = root / f"sys/fs/cgroup{path}/cpu.stat"
        else:
            continue
        if file.exists():
            return file
    return None


def default_cpu_file(container_id: str, *, root: Path = Path("/")) -> Path | None:
    """Like `cpu_file`, for a server in a container, which sees no process of another but may see the host's groups."""
    files = (root / one.format(container_id) for one in _CPU_FILES)
    return next((file for file in files if file.exists()), None)


def cpu_s(file: Path) -> float | None:
    """CPU seconds of all the container's processes, ended ones too; None: no process is left."""
    try:
        if file.name == "cpu.stat":
            return _counters(file)["usage_usec"] / 1e6
        return int(file.read_text()) / 1e9
    except (OSError, KeyError, ValueError):
        return None


def thaw(container_id: str, *, root: Path = Path("/")) -> bool:
    """Let the container's processes go on, without the engine; False: they are not frozen, or not visible from here.

    Raises:
        OSError: the kernel refuses it, for example where the host's groups are mounted read-only.
    """
    for path, thawed in _FREEZERS:
        for file in root.glob(path.format(container_id)):
            with suppress(FileNotFoundError):  # the container ends now
                # while a process begins, version 1 may stay FREEZING for ever
                if file.read_text().strip() != thawed:
                    file.write_text(thawed)
                    return True
    return False


def upper_of(pid: int, *, root: Path = Path("/")) -> str:
    """The folder in which overlayfs keeps what is written below the process's root; "" if not visible from here."""
    with suppress(OSError):
        match = _UPPER.search((root / f"proc/{pid}/mountinfo").read_text(errors="replace"))
        return match[1] if match else ""
    return ""


def idle_file(file: Path) -> Path:
    """The switch of the idle class beside a container's file for `cpu_s`. It may not exist."""
    folder = file.parent
    if file.name == "cpuacct.usage":
        folder = Path(*("cpu" if part == "cpuacct" else part for part in folder.parts))
    return folder / "cpu.idle"


def write_idle(file: Path, *, idle: bool) -> bool:
    """Put a container into the kernel's idle class (Linux 5.15), or take it out; returns whether that was possible."""
    try:
        file.write_text(str(int(idle)))
    except OSError:
        return False
    return True


def _paths(pid: int, root: Path) -> dict[str, str]:
    """Controllers ("" for version 2) -> the process's group."""
    lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
    return {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}


def _counters(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


class Processes:
    """Finds containers' first processes without the engine, once the engine has named one container's first process."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._root = root
        self._lists = ""
        """Path of a container's list of processes, with {} for its id."""

    def learn(self, container_id: str, pid: int) -> None:
        """`pid` is the first process of the container."""
        with suppress(OSError, ValueError):
            paths = _paths(pid, self._root)
            below = f"sys/fs/cgroup/pids{paths['pids']}" if "pids" in paths else f"sys/fs/cgroup{paths.get('', '')}"
            if container_id in below and "{" not in below:
                self._lists = below.replace(container_id, "{}") + "/cgroup.procs"

    def first_of(self, container_id: str) -> int | None:
        """The container's first process; None if that is not known here."""
        if not self._lists:
            return None
        with suppress(OSError):
            for pid in (self._root / self._lists.format(container_id)).read_text().split()[:_CANDIDATES]:
                with suppress(OSError):
                    status = (self._root / f"proc/{pid}/status").read_text()
                    if status.partition("\nNSpid:")[2].partition("\n")[0].split()[-1:] == ["1"]:
                        return int(pid)
        return None
