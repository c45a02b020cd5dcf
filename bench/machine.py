"""The machine of the figures, its current load, and the resource use of our processes."""

import asyncio
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench.results import Conditions

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_S = 1.0
"""Seconds for which the CPUs are observed before a measurement."""
NOISY_PCT = 15.0
"""CPU use by others from which on figures should not be quoted."""


def description() -> dict[str, str]:
    """Facts for comparing figures, without names and dates."""
    form = "{{.Server.Version}}"
    docker = subprocess.run(["docker", "version", "-f", form], capture_output=True, text=True, check=True, timeout=30)
    form = "{{.Driver}}, cgroup v{{.CgroupVersion}}, {{.DefaultRuntime}}"
    engine = subprocess.run(["docker", "info", "-f", form], capture_output=True, text=True, check=True, timeout=30)
    memory = int(_fields(Path("/proc/meminfo"))["MemTotal"].split()[0])
    model = _fields(Path("/proc/cpuinfo")).get("model name", platform.machine())
    return {
        "CPUs": f"{os.cpu_count()} ({model})",
        "memory": f"{memory / 2**20:.0f} GiB",
        "kernel": platform.release(),
        "Docker": f"{docker.stdout.strip()} ({engine.stdout.strip()})",
        "Python": platform.python_version(),
        "10,000,000 additions in Python": f"{_additions_s():.2f} s of CPU (median of 5)",
    }


async def conditions() -> Conditions:
    """Observe the machine for a second, while this run itself waits."""
    before = _cpu()
    await asyncio.sleep(_LOOK_S)
    busy, total = (now - then for now, then in zip(_cpu(), before, strict=True))
    return Conditions(os.getloadavg()[0], 100 * busy / max(total, 1))


def busy_s() -> float:
    """Seconds that all CPUs together have been busy since boot."""
    return _cpu()[0] / _TICKS


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far; 0.0 if it is gone."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) / _TICKS


def rss_mb(pid: int) -> float:
    """Resident memory of a process, in MB of 2^20 bytes; 0.0 if it is gone."""
    try:
        status = _fields(Path(f"/proc/{pid}/status"))
    except OSError:
        return 0.0
    return int(status.get("VmRSS", "0").split()[0]) / 1024  # a zombie has none


def open_files(pid: int) -> int:
    """Number of a process's file descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def engine_pids() -> list[int]:
    """Process ids of the Docker engine: dockerd, containerd and the shims."""
    return [pid for pid, name in _processes() if name.startswith(("dockerd", "containerd"))]


def pids_of(containers: Iterable[str]) -> list[int]:
    """Processes in these containers (full ids), found by their cgroups."""
    wanted = set(containers)
    found = []
    for pid, _ in _processes():
        try:
            cgroup = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            continue
        tail = cgroup.rpartition("/")[2].strip().removeprefix("docker-").removesuffix(".scope")
        if tail in wanted:
            found.append(pid)
    return found


def redis_pid(data_dir: Path) -> int | None:
    """The embedded Redis of that data directory, found by its working directory or its command line."""
    for pid, name in _processes():
        if not name.startswith(("redis-server", "valkey-server")):
            continue
        try:
            where = os.readlink(f"/proc/{pid}/cwd") + Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if str(data_dir) in where:
            return pid
    return None


def container_memory_mb(pid: int) -> float:
    """Memory charged to the cgroup of a container's main process.

    Raises:
        OSError: the cgroup file system is not in its usual place.

    """
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return int(Path(f"/sys/fs/cgroup/memory{path}/memory.usage_in_bytes").read_text()) / 2**20
        if not controllers:
            current = Path(f"/sys/fs/cgroup{path}/memory.current")
            if current.exists():
                return int(current.read_text()) / 2**20
    raise OSError("no memory controller")


def _additions_s() -> float:
    """CPU seconds of a loop: virtual CPUs with the same name differ by a factor of four."""
    loop = compile("total = 0\nfor number in range(10_000_000): total += number", "loop", "exec")
    took = []
    for _ in range(5):
        began = time.process_time()
        exec(loop, {})
        took.append(time.process_time() - began)
    return statistics.median(took)


def _cpu() -> tuple[int, int]:
    """(busy, all) ticks of all CPUs since boot."""
    values = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def _processes() -> list[tuple[int, str]]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found.append((int(entry), Path(f"/proc/{entry}/comm").read_text().strip()))
            except OSError:
                continue
    return found


def _fields(path: Path) -> Mapping[str, str]:
    pairs = (line.partition(":") for line in path.read_text().splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
