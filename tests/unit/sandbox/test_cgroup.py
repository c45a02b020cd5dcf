"""The kernel's counters of a container, for both versions of cgroups."""

from pathlib import Path

import pytest

from sandbox_server.sandbox.docker.cgroup import Kills, kills

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
