"""Containers have their limits and leave nothing behind."""

import asyncio
import gc
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandbox_server.errors import EngineUnavailable, ImageUnavailable, SandboxLost
from sandbox_server.sandbox.base import Limits, Role, ShellOutcome
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker import cgroup
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime

from .backends import GVISOR, Backend, unlike_gvisor
from .specs import IMAGE, gone, say, spec

FORBIDDEN = {"SYS_ADMIN": 21, "NET_ADMIN": 12, "SYS_PTRACE": 19, "SYS_MODULE": 16, "NET_RAW": 13, "MKNOD": 27}


@pytest.fixture
async def lone(backend: Backend) -> DockerRuntime:
    """A runtime whose node has no other containers."""
    return backend.runtime()


@unlike_gvisor("applies no seccomp profile, and shows no NoNewPrivs")
async def test_isolation(shared: BashSandbox, backend: Backend) -> None:
    """A policy could reach the network, the engine or the host."""
    out = await say(
        shared, "grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status; ls /sys/class/net; ls /var/run"
    )
    seen = dict(line.split(":\t") for line in out.splitlines() if ":\t" in line)
    for caps in (seen["CapEff"], seen["CapBnd"]):
        assert not [name for name, bit in FORBIDDEN.items() if int(caps, 16) & 1 << bit]
    assert (seen["NoNewPrivs"], seen["Seccomp"]) == ("1", "2")
    assert "eth0" not in out and "docker.sock" not in out
    found: dict[str, Any] = await backend.engine.call(lambda api: api.inspect_container(shared.container_id))
    host = found["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (256 << 20, 256 << 20, 128)
    assert (host["NanoCpus"], host["NetworkMode"], host["Privileged"]) == (2_000_000_000, "none", False)
    assert not host["Binds"] and host["Init"]
    assert (
        await say(shared, "tr '\\0' '\\n' < /proc/1/cmdline | head -1; ulimit -n; ulimit -f; ulimit -c; hostname")
    ) == (f"{backend.init}\n4096\n65536\n0\nopenhands-workspace")


async def test_the_token_stays_ours(shared: BashSandbox) -> None:
    """With the token a policy could forge the notices that the service trusts."""
    token = shared.token
    out = await shared.exec(
        [
            "bash",
            "-c",
            f"cat /proc/*/environ /proc/*/cmdline /run/sandbox/* 2>/dev/null | grep -ac {token[:20]}[{token[20]}]",
        ],
        timeout_s=10,
    )
    assert out.stdout.head == b"0\n"


async def test_zombies_are_reaped(shared: BashSandbox) -> None:
    """Orphans that nobody waits for would fill the PID limit."""
    await say(shared, "for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.05 & exec true' &); done; sleep 0.5")
    assert await say(shared, "ps -eo stat | grep -c Z") == "0"


async def test_labels(runtime: DockerRuntime) -> None:
    """The reaper could not tell a container's owner or deadline."""
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=3)
    sandbox = await runtime.create(spec(role=Role.PREPARE, sid="12345", deadline=deadline, with_shell=False))
    try:
        found = {info.container_id: info for info in await runtime.list()}[sandbox.container_id]
        assert (found.role, found.sid, found.deadline, found.running) == (Role.PREPARE, "12345", deadline, True)
        assert found.image == IMAGE
    finally:
        await runtime.remove(sandbox.container_id)


async def test_a_container_for_another_session(runtime: DockerRuntime) -> None:
    """A container that was made ahead is listed under the sid that it was made with."""
    sandbox = await runtime.create(spec(sid="41"))
    await runtime.assign(sandbox.container_id, "42")
    assert [c.sid for c in await runtime.list() if c.container_id == sandbox.container_id] == ["42"]
    assert (await sandbox.shell.run("true", timeout_s=9)).exit_code == 0
    await runtime.remove(sandbox.container_id)
    with pytest.raises(SandboxLost):
        await runtime.assign(sandbox.container_id, "42")


async def test_removal(runtime: DockerRuntime) -> None:
    """A second removal, or two concurrent ones, would make a session's end fail."""
    sandbox = await runtime.create(spec())
    began = time.monotonic()
    await asyncio.gather(*(runtime.remove(sandbox.container_id) for _ in range(3)))
    assert time.monotonic() - began < 40
    await runtime.remove(sandbox.container_id)
    await runtime.remove("0" * 64)
    assert sandbox.container_id not in [info.container_id for info in await runtime.list()]
    with pytest.raises(SandboxLost):
        await runtime.attach(sandbox.container_id)


async def test_image_missing(runtime: DockerRuntime) -> None:
    """A missing image would look like a fault of the engine, or leave a container."""
    with pytest.raises(ImageUnavailable):
        await runtime.create(spec(image="sandbox-test/no-such-image:1"))
    with pytest.raises(ImageUnavailable):
        await runtime.images.resolve(["sandbox-test/no-such-image:1"])
    found = await runtime.images.resolve(["sandbox-test/no-such-image:1", IMAGE])
    assert found.name == IMAGE and found.digest.startswith("sha256:")


async def _image(engine: Engine, name: str, *, script: str = "true", changes: list[str]) -> str:
    """Build an image from the base: run `script` in it, then apply `changes` to its configuration."""

    def make(api: Any) -> None:
        made = api.create_container(IMAGE, command=["sh", "-c", script], labels={"sandbox.test": "1"})
        api.start(made["Id"])
        end = time.monotonic() + 30
        while api.inspect_container(made["Id"])["State"]["Status"] != "exited":  # Podman's wait may return too early
            assert time.monotonic() < end
            time.sleep(0.05)
        api.commit(made["Id"], repository="sandbox-test/" + name, tag="1", changes=changes)
        api.remove_container(made["Id"], force=True)

    await engine.call(make)
    return f"sandbox-test/{name}:1"


@pytest.mark.parametrize("late_s", [0, 1])
async def test_image_without_bash(
    lone: DockerRuntime, engine: Engine, monkeypatch: pytest.MonkeyPatch, late_s: int
) -> None:
    """An unusable image would cost a minute's wait and be called an overloaded host, or pass for a ready one."""
    image = await _image(engine, "no-bash", script="rm /bin/bash", changes=[])
    begin = BashSandbox.begin

    async def slowly(sandbox: BashSandbox) -> None:  # so that the container ends before its shell is waited for
        await begin(sandbox)
        await asyncio.sleep(late_s)

    monkeypatch.setattr(BashSandbox, "begin", slowly)
    try:
        began = time.monotonic()
        with pytest.raises(ImageUnavailable, match="bash"):
            await lone.create(spec(image=image))
        assert time.monotonic() - began < 40
        assert not await lone.list()
    finally:
        await engine.call(lambda api: api.remove_image(image, force=True))


async def test_image_with_an_odd_configuration(runtime: DockerRuntime, engine: Engine, backend: Backend) -> None:
    """An image's own user, entry point, folder or variables would keep the shell from starting."""
    image = await _image(
        engine,
        "odd",
        script="echo 'echo noise; exit 3' > /noise; rm -f /etc/passwd",
        changes=[
            'ENTRYPOINT ["/no/such/entrypoint"]',
            'CMD ["/no/such/command"]',
            "USER 65534",
            "WORKDIR /no/such/folder",
            "ENV BASH_ENV=/noise ENV=/noise PS1=odd PROMPT_COMMAND=odd IFS=x TERM=xterm LD_X=1",
            *(["HEALTHCHECK CMD false"] if backend.name == "docker" else []),  # Podman's commit does not support it
            "VOLUME /data",
        ],
    )
    sandbox = None
    try:
        sandbox = await runtime.create(spec(image=image, workdir="/made/by/us"))
        assert await say(sandbox, "echo $PWD $EUID $TERM") == "/made/by/us 0 dumb"
        await sandbox.write_file("/made/f", b"1")
        assert await sandbox.read_file("/made/f", max_bytes=9) == b"1"
        result = await sandbox.shell.run("sleep 4711", timeout_s=0.3)
        assert result.outcome is ShellOutcome.INTERRUPTED
        assert await gone(sandbox, "4711")
    finally:
        if sandbox is not None:
            await runtime.remove(sandbox.container_id)
        await engine.call(lambda api: api.remove_image(image, force=True))


async def test_activation(runtime: DockerRuntime) -> None:
    """A task's environment would be missing, also in the shell that replaces the first, or its noise be shown."""
    made = await runtime.create(spec(activate="export ACTIVE=1; act() { echo acted; }; echo noise; false"))
    try:
        assert await say(made, "echo $ACTIVE; act") == "1\nacted"
        await made.shell.run("exit", timeout_s=5)
        assert await say(made, "echo $ACTIVE; act") == "1\nacted"
    finally:
        await runtime.remove(made.container_id)


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.1, 0.2, 0.35])
async def test_cancelled_creation(lone: DockerRuntime, after_s: float) -> None:
    """A start whose client disconnected would leave a container forever."""
    creating = asyncio.create_task(lone.create(spec()))
    await asyncio.sleep(after_s)
    creating.cancel()
    try:
        made = await creating
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    else:
        await lone.remove(made.container_id)
    assert not await lone.list()


async def test_twice_cancelled_creation(lone: DockerRuntime) -> None:
    """A second cancellation (a server that shuts down) would interrupt the cleanup."""
    creating = asyncio.create_task(lone.create(spec()))
    await asyncio.sleep(0.02)
    for _ in range(2):
        creating.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await creating
    for _ in range(300):
        if not await lone.list():
            return
        await asyncio.sleep(0.1)
    pytest.fail("a container was left behind")


@unlike_gvisor("takes any limit of open files")
async def test_refused_creation(lone: DockerRuntime) -> None:
    """A limit that the engine refuses would leave a created container, or be blamed on the policy."""
    with pytest.raises(EngineUnavailable):
        await lone.create(spec(limits=Limits(memory_mb=256, pids=64, open_files=1 << 30)))
    assert not await lone.list()


async def test_many_at_once(runtime: DockerRuntime) -> None:
    """A batch of starts would fail where one works."""
    made = await asyncio.gather(*(runtime.create(spec(sid=str(number))) for number in range(8)))
    try:
        assert await asyncio.gather(*(say(sandbox, "echo $((6*7))") for sandbox in made)) == ["42"] * 8
    finally:
        await asyncio.gather(*(runtime.remove(sandbox.container_id) for sandbox in made))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK forgets its socket
async def test_unreachable_engine() -> None:
    """A wrong address of the engine would hang, or fail as something else."""
    with pytest.raises(EngineUnavailable):
        Engine("unix:///nonexistent/docker.sock", timeout_s=2)
    gc.collect()


async def test_disk_usage(runtime: DockerRuntime, shared: BashSandbox) -> None:
    """A policy that fills the host's disk with many files would not be noticed."""
    before = (await runtime.disk_usage())[shared.container_id]
    await say(shared, "for i in 1 2 3; do head -c 10000000 /dev/zero > /usr/big-$i; done")
    after = await runtime.disk_usage()
    assert 30_000_000 <= after[shared.container_id] - before < 31_000_000
    assert set(after) == {info.container_id for info in await runtime.list()}
    await say(shared, "rm /usr/big-*")


async def test_disk_usage_of_what_has_no_length(runtime: DockerRuntime, shared: BashSandbox) -> None:
    """A limit of 10 GB let a policy take 4 TB in files of one byte and in folders, or every inode of its host."""
    before = (await runtime.disk_usage(shared.container_id))[shared.container_id]
    await say(shared, "mkdir /many; cd /many; for i in {1..1000}; do : > e$i; done; mkdir d{1..1000}")
    after = (await runtime.disk_usage())[shared.container_id]
    assert 2000 * 4096 <= after - before < 2100 * 4096
    await say(shared, "rm -r /many")


async def test_a_layer_is_found_without_the_engine(
    backend: Backend, lone: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session costs the engine and the server 2 ms once, in the first look at the disk after its start."""
    if not backend.name.startswith("docker") or GVISOR:
        pytest.skip("its containers' mounts may look different from outside")
    engine, asked = backend.engine, 0
    call = engine.call

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return await call(*arguments, **options)

    made = [await lone.create(spec(with_shell=False)) for _ in range(3)]
    try:
        await made[1].exec(["bash", "-c", "for i in {1..500}; do : > /usr/e$i; done"], timeout_s=60)
        monkeypatch.setattr(engine, "call", counted)
        used = await lone.disk_usage()
        assert 500 * 4096 <= used[made[1].container_id] - used[made[0].container_id] < 600 * 4096
        assert asked == 2, "for the sizes of all, and for one layer, to which the kernel's answer is compared"
        await lone.disk_usage()
        assert asked == 3, "for the sizes"
    finally:
        await asyncio.gather(*(lone.remove(one.container_id) for one in made))


async def test_commit(runtime: DockerRuntime, engine: Engine, shared: BashSandbox) -> None:
    """A prepared image would lack what was prepared."""
    await shared.write_file("/usr/prepared", b"yes")
    info = await runtime.images.commit(shared.container_id, "sandbox-test/commit:1", {"a": "b c"})
    again = None
    try:
        found = await runtime.images.find(info.name)
        assert found is not None and found.labels["a"] == "b c"
        again = await runtime.create(spec(image=info.name))
        assert await say(again, "cat /usr/prepared; pwd") == "yes/tmp"
    finally:
        if again is not None:
            await runtime.remove(again.container_id)
        await engine.call(lambda api: api.remove_image(info.name, force=True))


def switch_of(container_id: str) -> tuple[Path, str] | None:
    """The file that freezes the container, and with which word; None: it cannot be written from here."""
    for pattern, thawed in cgroup._FREEZERS:
        for file in Path("/").glob(pattern.format(container_id)):
            if os.access(file, os.W_OK):
                return file, "1" if thawed == "0" else "FROZEN"
    return None


def froze_as_it_began(switch: Path, frozen: str) -> None:
    """Freeze the container of this file of its control group as soon as it has one process more."""
    processes = switch.parent / "cgroup.procs"
    before, until = processes.read_text(), time.monotonic() + 20
    while processes.read_text() == before:
        assert time.monotonic() < until
    switch.write_text(frozen)


async def is_held_up(engine: Engine, container_id: str) -> bool:
    """Whether the engine answers no call for the container."""
    try:
        await engine.call(lambda api: api.inspect_container(container_id), timeout_s=2)
    except EngineUnavailable:
        return True
    return False


@pytest.mark.parametrize("ends", ["resumed", "removed"])
async def test_a_process_that_a_pause_froze_as_it_began(lone: DockerRuntime, backend: Backend, ends: str) -> None:
    """The engine waited for it, and answered no call for the container any more: each took 60 s, for good."""
    engine, sandbox = backend.engine, await lone.create(spec(with_shell=False))
    container_id = sandbox.container_id
    switch = switch_of(container_id)
    if switch is None:
        await lone.remove(container_id)
        pytest.skip("the engine's control groups cannot be written from here")
    begun = []
    try:
        for _ in range(10):  # its window is some 20 ms
            made = await engine.call(lambda api: api.exec_create(container_id, ["sleep", "1"]))
            freezing = asyncio.create_task(asyncio.to_thread(froze_as_it_began, *switch))
            begun.append(asyncio.create_task(engine.call(lambda api, own=made["Id"]: api.exec_start(own))))
            await freezing
            if await is_held_up(engine, container_id):
                break
            await asyncio.to_thread(cgroup.thaw, container_id)
            await begun[-1]
        else:
            pytest.fail("no process was frozen as it began")
        async with asyncio.timeout(40):  # the engine's own bound is 60 s
            if ends == "resumed":
                await lone.unpause(container_id)
                await begun[-1]
            await lone.remove(container_id)
    finally:
        await asyncio.to_thread(cgroup.thaw, container_id)
        await asyncio.gather(*begun, return_exceptions=True)
        await lone.remove(container_id)
