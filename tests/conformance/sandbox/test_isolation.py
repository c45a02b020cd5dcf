"""A table of what root in a sandbox can reach: any other access that opens is a finding."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandbox_server.sandbox.base import Role
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.egress import Egress, Target
from tests.deployment import bridge_gateway

from .backends import Backend, unlike_gvisor
from .specs import IMAGE, spec

PROBE = Path(__file__).with_name("reach.py").read_text()
METADATA = "169.254.169.254:80"

OWN = {"read /proc/1/mem"}
"""Open, but harmless: the first process of a sandbox belongs to the sandbox's own root."""
FACTS = {
    "NoNewPrivs": "1",
    "Seccomp": "2",
    "capabilities": "00000000000401fb",
    "devices": [],
    "open files": 4096,
    "core": 0,
}
BOUNDS = {"a file of 65 MB": "EFBIG", "200 processes": "EAGAIN"}
HOSTS = ("connect ", "read /dev/", "read /proc/kcore", "socket /", "write /proc/sys", "vsock", "keyring")
"""Prefixes that are the host's, whichever kernel answers. Everything else in a gVisor sandbox is its own kernel's."""


def opened(found: dict[str, Any]) -> set[str]:
    return {name for name, outcome in found.items() if outcome == "open"}


async def reached(sandbox: BashSandbox, *places: str) -> dict[str, Any]:
    done = await sandbox.exec(["python3", "-c", PROBE, *places], timeout_s=90)
    assert done.exit_code == 0, done.stderr.text()
    return dict(json.loads(done.stdout.text().splitlines()[-1]))


@unlike_gvisor("answers such calls itself, and bounds no processes with --ignore-cgroups")
@pytest.mark.parametrize("role", [Role.SESSION, Role.GRADE])
async def test_nothing_of_the_host_is_reached(runtime: DockerRuntime, engine: Engine, role: Role) -> None:
    """A policy would leave its sandbox, or take more of its host than it may; tests in a grading likewise."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        places = [METADATA, f"127.0.0.1:{port}", f"{bridge_gateway()}:{port}"]
        sandbox = await runtime.create(spec(role=role))
        try:
            found = await reached(sandbox, *places)
            host = (await engine.call(lambda api: api.inspect_container(sandbox.container_id)))["HostConfig"]
        finally:
            await runtime.remove(sandbox.container_id)
    assert opened(found) <= OWN, sorted(opened(found))
    for name, wanted in (FACTS | BOUNDS).items():
        assert found[name] == wanted, (name, found[name])
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"], host["PidsLimit"]) == (256 << 20,) * 2 + (
        2_000_000_000,
        128,
    )
    assert not (host["Privileged"] or host["Binds"])
    assert {host[mode] for mode in ("PidMode", "UTSMode", "UsernsMode")} <= {"", "private"}  # the latter is Podman's


@unlike_gvisor("applies no seccomp profile")
async def test_a_seccomp_profile_of_the_operators(backend: Backend, tmp_path: Path) -> None:
    """SANDBOX_SECCOMP names a file, and calls that it forbids would work all the same."""
    profile = tmp_path / "no-symlinks.json"
    forbidden = [{"names": ["symlink", "symlinkat"], "action": "SCMP_ACT_ERRNO"}]
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": forbidden}))
    runtime = backend.runtime(seccomp=profile)
    sandbox = await runtime.create(spec())
    try:
        links = [await sandbox.exec(["ln", flag, "/etc/passwd", "/etc/own"], timeout_s=20) for flag in ("-s", "-f")]
    finally:
        await runtime.remove(sandbox.container_id)
    assert [link.exit_code for link in links] == [1, 0]
    assert "Operation not permitted" in links[0].stderr.text()


@unlike_gvisor("has no network with --network=none")
async def test_an_allow_list_shuts_host_and_neighbours(runtime: DockerRuntime, engine: Engine) -> None:
    """With a network a box would reach other boxes, services of the host, and a cloud's credentials."""
    free = await runtime.create(spec(network="bridge"))
    listed = await runtime.create(spec(network="bridge", egress=Egress((Target.parse("192.0.2.1"),))))
    try:
        facts = await engine.call(lambda api: api.inspect_container(free.container_id))
        neighbour = facts["NetworkSettings"]["Networks"][engine.network]["IPAddress"]
        serving = asyncio.ensure_future(free.exec(["python3", "-m", "http.server", "8099"], timeout_s=60))
        with socket.create_server(("0.0.0.0", 0)) as listener:
            host = f"{bridge_gateway()}:{listener.getsockname()[1]}"
            own = await reached(free, host)
            found = await reached(listed, METADATA, host, f"{neighbour}:8099")
        assert f"connect {host}" in opened(own), "the listener cannot be reached at all: nothing is shown here"
        assert opened(found) <= OWN, sorted(opened(found))
    finally:
        for sandbox in (free, listed):
            await runtime.remove(sandbox.container_id)
    await asyncio.gather(serving, return_exceptions=True)


def test_gvisor_keeps_the_kernel_to_itself(tmp_path: Path) -> None:
    """With SANDBOX_RUNTIME=runsc the system calls of a sandbox would reach the host's kernel all the same."""
    runsc = shutil.which("runsc")
    if runsc is None:
        pytest.skip("no runsc here: apt-get install runsc")
    root = tmp_path / "rootfs"
    root.mkdir()
    made = subprocess.run(["docker", "create", IMAGE], capture_output=True, text=True, check=True).stdout.strip()
    try:
        subprocess.run(f"docker export {made} | tar -x -C {root}", shell=True, check=True)
    finally:
        subprocess.run(["docker", "rm", made], capture_output=True, check=True)
    (root / "reach.py").write_text(PROBE)
    caps = [f"CAP_{name}" for name in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_CHROOT")]
    process = {
        "user": {"uid": 0, "gid": 0},
        "args": ["/usr/bin/python3", "/reach.py", METADATA],
        "env": ["PATH=/usr/bin:/bin"],
        "cwd": "/",
        "noNewPrivileges": True,
        "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), caps),
        "rlimits": [
            {"type": "RLIMIT_FSIZE", "hard": 64 << 20, "soft": 64 << 20},
            {"type": "RLIMIT_NPROC", "hard": 128, "soft": 128},
        ],
    }
    spaces = [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    config = {"ociVersion": "1.0.0", "process": process, "root": {"path": "rootfs"}, "hostname": "sandbox"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "mounts": mounts, "linux": {"namespaces": spaces}}))
    words = [runsc, "--root", str(tmp_path / "state"), "--network=none", "--ignore-cgroups", "run", tmp_path.name]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=80, check=False)
    if done.returncode and "reach" not in done.stderr:
        pytest.skip(f"runsc does not run here: {done.stderr.strip()[-200:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kernel"] != os.uname().release, "the host's own kernel answers"
    assert not [name for name in opened(found) if name.startswith(HOSTS)], sorted(opened(found))
    assert len([name for name in found if name.startswith(HOSTS)]) >= 12
