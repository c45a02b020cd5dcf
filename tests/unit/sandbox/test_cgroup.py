"""The kernel's counters of a container, for both versions of cgroups."""

from pathlib import Path

import pytest

from sandbox_server.sandbox.docker.cgroup import (
    Kills,
    Processes,
    cpu_s,
    default_cpu_file,
    kills,
    memory_limit,
    thaw,
    upper_of,
)

_VERSION_1 = {
    "proc/7/cgroup": "8:pids:/docker/c\n4:memory:/docker/c\n0::/docker/c\n",
    "sys/fs/cgroup/memory/docker/c/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}


def _version_2(oom: int) -> dict[str, str]:
    return {
        "proc/7/cgroup": "0::/system.slice/docker-c.scope\n",
        "sys/fs/cgroup/system.slice/docker-c.scope/memory.events": f"low 0\nhigh 0\nmax 9\noom {oom}\noom_kill 1\n",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (_VERSION_1, Kills(2, None)),
        (_version_2(0), Kills(1, at_limit=False)),  # for lack of host memory
        (_version_2(3), Kills(1, at_limit=True)),
        ({"proc/7/cgroup": "0::/../c\n"}, None),
        ({}, None),
    ],
)
def test_kills_are_read(tmp_path: Path, files: dict[str, str], expected: Kills | None) -> None:
    """Invisible counters are unknown; a malformed file is not taken for a kill."""
    for path, text in files.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert kills(7, root=tmp_path) == expected


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({**_VERSION_1, "sys/fs/cgroup/memory/docker/c/memory.limit_in_bytes": "6291456\n"}, 6 << 20),
        ({**_version_2(0), "sys/fs/cgroup/system.slice/docker-c.scope/memory.max": "6291456\n"}, 6 << 20),
        ({**_version_2(0), "sys/fs/cgroup/system.slice/docker-c.scope/memory.max": "max\n"}, None),
        (_VERSION_1, None),
        ({}, None),
    ],
)
def test_the_memory_limit_is_the_kernels(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    """What somebody writes into the group past the engine would be the patch's fault."""
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert memory_limit(7, root=tmp_path) == limit


def test_a_first_process_is_found_without_the_engine(tmp_path: Path) -> None:
    """Another container's process, or none that is the first one, is taken for it."""
    one, other = "1" * 64, "2" * 64
    for name, pids in ((one, "70\n71\n"), (other, "80\n81\n")):
        folder = tmp_path / f"sys/fs/cgroup/pids/docker/{name}"
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(pids)
    for pid, inner, group in ((70, 1, one), (71, 9, one), (80, 7, other), (81, 1, other)):
        folder = tmp_path / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{inner}\nThreads:\t1\n")
        (folder / "cgroup").write_text(f"9:memory:/docker/{group}\n8:pids:/docker/{group}\n")
    known = Processes(root=tmp_path)
    assert known.first_of(other) is None, "nothing was learned yet"
    known.learn(other, 70)
    assert known.first_of(other) is None, "70 is not of that container"
    known.learn(one, 70)
    assert (known.first_of(one), known.first_of(other), known.first_of("3" * 64)) == (70, 81, None)


_OTHER = "674 673 0:61 / /data rw - overlay overlay rw,lowerdir=/l,upperdir=/data-upper,workdir=/w\n"


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (
            "673 381 0:60 / / rw master:17 - overlay overlay rw,lowerdir=/l:/m,upperdir=/u/1/diff,workdir=/w",
            "/u/1/diff",
        ),
        ("673 381 0:60 / / rw - overlay overlay rw,upperdir=/u/1", "/u/1"),
        ("673 381 0:60 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/a\\040b/diff,workdir=/w", ""),
        ("673 381 8:1 / / rw - ext4 /dev/vda rw", ""),
    ],
)
def test_the_layer_of_a_process(tmp_path: Path, root: str, expected: str) -> None:
    """The files of another mount, or of half a name, would be counted as those that a policy has written."""
    file = tmp_path / "proc/7/mountinfo"
    file.parent.mkdir(parents=True)
    file.write_text(f"{_OTHER}{root}\n{_OTHER}")
    assert upper_of(7, root=tmp_path) == expected
    assert upper_of(8, root=tmp_path) == ""


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("cpuacct/docker/{}/cpuacct.usage", "2500000000\n"),
        ("cpu,cpuacct/system.slice/docker-{}.scope/cpuacct.usage", "2500000000\n"),
        ("cpu,cpuacct/{}/cpuacct.usage", "2500000000\n"),
        ("docker/{}/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
        ("system.slice/docker-{}.scope/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
    ],
)
def test_a_container_is_found_by_its_id_where_its_processes_are_not_seen(tmp_path: Path, path: str, text: str) -> None:
    """A server in a container sees the host's control groups if they are mounted, and no process of others."""
    one = "1" * 64
    file = tmp_path / "sys/fs/cgroup" / path.format(one)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert default_cpu_file("2" * 64, root=tmp_path) is None
    assert cpu_s(default_cpu_file(one, root=tmp_path) or Path()) == 2.5


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("freezer/docker/{}/freezer.state", "FROZEN", "THAWED"),
        ("freezer/{}/freezer.state", "FREEZING", "THAWED"),
        ("system.slice/docker-{}.scope/cgroup.freeze", "1", "0"),
    ],
)
def test_a_container_is_thawed_below_any_parent(tmp_path: Path, path: str, before: str, after: str) -> None:
    """One in which a process began while it was frozen stays FREEZING for ever, and locks the engine's calls for it."""
    one = "1" * 64
    file = tmp_path / "sys/fs/cgroup" / path.format(one)
    file.parent.mkdir(parents=True)
    file.write_text(f"{before}\n")
    assert not thaw("2" * 64, root=tmp_path)
    assert thaw(one, root=tmp_path) and file.read_text() == after
    assert not thaw(one, root=tmp_path), "it runs"
