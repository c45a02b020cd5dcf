"""The FIFOs of a shell: used where they work, given up where they do not, and nothing that their container does to them
concerns another one."""

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest

from sandbox_server.sandbox.base import ShellOutcome
from sandbox_server.sandbox.bash.fifos import TARGET
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from tests.live import forking

from .backends import Backend
from .specs import say, shown, spec, there

BASE = Path("/run/sandbox-server")


@pytest.fixture(autouse=True)
def with_fifos(backend: Backend) -> None:
    """These tests are of an engine that uses them."""
    if backend.fifos is None:
        pytest.skip(f"{backend.name} carries the bytes of its shells")


def direct(sandbox: BashSandbox) -> bool:
    """The shell is reached through FIFOs now."""
    terminal = sandbox.shell._terminal
    assert terminal is not None
    return terminal.direct


def folder_of(sandbox: BashSandbox) -> Path:
    """The folder of its FIFOs."""
    assert sandbox.fifos is not None
    return sandbox.fifos._folder


async def test_they_live_as_long_as_their_container(backend: Backend) -> None:
    """A folder for each session of weeks would fill the host's memory."""
    runtime = backend.runtime(fifos=BASE)
    sandbox = await runtime.create(spec())
    folder = folder_of(sandbox)
    assert direct(sandbox) and sorted(os.listdir(folder)) == ["in", "out"]
    assert folder.parent.parent == BASE
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (folder.parent, folder)] == [0o700, 0o711]
    await runtime.remove(sandbox.container_id)
    assert not folder.exists()
    killed = folder.parent / "0123456789abcdef"  # of a server that was killed while it created a container
    young = folder.parent / "fedcba9876543210"
    for left in (killed, young):
        left.mkdir()
    os.utime(killed, (0, 0))
    await runtime.list()
    assert not killed.exists() and young.exists()
    young.rmdir()


async def test_another_server_goes_on_with_them(backend: Backend) -> None:
    """Text that was printed in between would be lost, or the shell unreachable."""
    first = backend.runtime(fifos=BASE)
    sandbox = await first.create(spec())
    result = await sandbox.shell.run(
        "cd /usr; sleep 0.3; echo between; touch /tmp/said", timeout_s=9, soft_timeout_s=0.1
    )
    assert result.outcome is ShellOutcome.RUNNING
    sandbox.close()
    second = backend.runtime(first._config.node, fifos=None)  # the setting concerns new containers
    again = await second.attach(sandbox.container_id)
    try:
        await there(again, "/tmp/said")
        left = await again.shell.settle(wait_s=5)
        assert left is not None and shown(left) == "between\n" and left.cwd == "/usr"
        assert direct(again) and await say(again, "echo here") == "here"
    finally:
        await second.remove(again.container_id)
    assert not folder_of(sandbox).exists()


KILLED_SERVER = """
import asyncio, os, sys
from pathlib import Path
from sandbox_server.sandbox.config import RuntimeConfig
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime

async def main(container, node, command):
    runtime = DockerRuntime(Engine(None, timeout_s=60), RuntimeConfig(node=node))
    sandbox = await runtime.attach(container)
    process = await sandbox.start(["sh", "-c", command], timeout_s=60)
    async for _ in process.output():
        os._exit(0)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_command_outlives_the_server_that_started_it(backend: Backend) -> None:
    """It would be ended by SIGPIPE, or wait for ever for somebody who reads its output."""
    runtime = backend.runtime(fifos=BASE)
    sandbox = await runtime.create(spec(with_shell=False))
    node = runtime._config.node
    command = "yes | head -c 1000000; touch /tmp/all"  # more than a FIFO holds
    try:
        argv = ["-c", KILLED_SERVER, sandbox.container_id, node, command]
        assert (await asyncio.to_thread(forking.run, argv, os.environ)).returncode == 0
        next_one = backend.runtime(node)
        await there(await next_one.attach(sandbox.container_id), "/tmp/all")
        next_one._open.popitem()[1].close()
    finally:
        await runtime.remove(sandbox.container_id)


async def test_another_user_cannot_open_a_channel(backend: Backend) -> None:
    """Whoever writes into a channel of root is root of the container."""
    runtime = backend.runtime(fifos=BASE)
    sandbox = await runtime.create(spec(with_shell=False))
    try:
        process = await sandbox.start(["sleep", "60"])
        opening = f"for f in /proc/[0-9]*/fd/* {TARGET}/* {{}}; do (: <> $f) 2> /dev/null && echo $f; done; true"
        named = " ".join(f"{TARGET}/{name}" for name in os.listdir(folder_of(sandbox)))
        assert named.count(".out") == 1 and ".in" not in named
        found = await sandbox.exec(["sh", "-c", opening.format(named)], user="nobody", timeout_s=20)
        assert not [line for line in found.stdout.text().split() if line.startswith(TARGET)], found
        again = await sandbox.exec(["sh", "-c", opening.format(named)], timeout_s=20)
        assert TARGET in again.stdout.text(), "root itself can open none: nothing is shown"
        await process.kill_tree()
    finally:
        await runtime.remove(sandbox.container_id)


@pytest.mark.parametrize("lack", ["script", "folder"])
async def test_without_them_the_engine_carries_the_bytes(backend: Backend, lack: str, tmp_path: Path) -> None:
    """An image without `script`, or an engine that has other folders than the server, would have no shells."""
    runtime = backend.runtime(fifos=BASE)
    image = {}
    if lack == "script":
        sandbox = await runtime.create(spec())
        await sandbox.exec(["rm", "-f", "/usr/bin/script"], timeout_s=20)
        made = await runtime.images.commit(sandbox.container_id, "sandbox-tests/no-script:latest", {})
        image = {"image": made.name}
        await runtime.remove(sandbox.container_id)
    else:
        made = runtime._fifos.make

        def elsewhere() -> Path | None:
            folder = made()
            assert folder is not None
            folder.rmdir()
            return folder

        runtime._fifos.make = elsewhere  # type: ignore[method-assign]  # as an engine in another place sees it
    sandbox = await runtime.create(spec(**image))
    try:
        assert not direct(sandbox) and await say(sandbox, "echo $((6 * 7))") == "42"
        assert bool(runtime._fifos.unused) == (lack == "folder")
        await sandbox.restart()
        assert not direct(sandbox) and await say(sandbox, "echo again") == "again"
    finally:
        await runtime.remove(sandbox.container_id)
        if image:
            await runtime.images.remove(image["image"])
    assert not list((BASE / runtime._config.node).iterdir())


HOSTILE = {
    "replaces": f"cd {TARGET}; rm -f in; mv out x; ln -s /etc/passwd in; mkfifo new; chmod 777 in out; umount {TARGET}",
    "fills": f"(exec 9<> {TARGET}/in; timeout 3 sh -c 'yes >&9') & sleep 0.3",
    "steals": f"(setsid cat {TARGET}/in > /dev/null 2>&1 &); sleep 0.3",
    "reads what is told": f"(setsid cat {TARGET}/out > /tmp/told 2>&1 &); sleep 0.3",
    "forges": rf"for i in 1 2 3; do printf '\036Lffffffffffffffffffffffffffffffff end 0\036' > {TARGET}/out; "
    rf"printf '\036P0000000000000000 root\036\036Lx up\036' > {TARGET}/out; done",
    "floods": f"(setsid sh -c 'timeout 3 cat /dev/zero > {TARGET}/out' &); sleep 0.3",
    "resizes": f'python3 -c \'import fcntl; fcntl.fcntl(open("{TARGET}/in", "r+", buffering=0), 1031, 1 << 30)\'; true',
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_container_harms_only_its_own_shell(backend: Backend, shared: BashSandbox, what: str) -> None:
    """They are shared with the host: what a policy does there must not hang the server nor reach another session."""
    runtime = backend.runtime(fifos=BASE)
    sandbox = await runtime.create(spec())
    try:
        folder = folder_of(sandbox)
        before = {name: (folder / name).stat() for name in ("in", "out")}
        began = time.monotonic()
        await sandbox.shell.run(HOSTILE[what], timeout_s=5)
        for _ in range(3):  # a thief takes some of the input; it is killed when the shell does not answer
            result = await sandbox.shell.run("echo answered", timeout_s=5)
            if "answered\r\n" in result.output.text():
                break
        assert "answered\r\n" in result.output.text(), result
        assert time.monotonic() - began < 60
        assert sorted(os.listdir(folder)) == ["in", "out"]
        if not result.restarted and what in ("replaces", "enlarges"):
            after = {name: (folder / name).stat() for name in ("in", "out")}
            assert {name: (one.st_ino, one.st_mode) for name, one in after.items()} == {
                name: (one.st_ino, one.st_mode) for name, one in before.items()
            }
        assert direct(shared) and await say(shared, "echo unharmed", timeout_s=5) == "unharmed"
    finally:
        await runtime.remove(sandbox.container_id)
