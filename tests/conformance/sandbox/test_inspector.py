"""Containers as the engine sees them, whatever runs or was replaced in them."""

import time

import pytest

from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.base import Role, Sandbox
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.inspector import FILES, FolderUnreadable
from tests.waiting import eventually

from .backends import Backend, unlike_gvisor
from .specs import say, spec

_READER = spec(role=Role.PREPARE, with_shell=False)


async def found(runtime: DockerRuntime, sandbox: Sandbox, folder: str, command: str) -> str:
    """The output of `command` in a container beside `sandbox`, in `folder` of its files."""
    reader = await runtime.inspector.create_reader(sandbox.container_id, _READER, folder=folder)
    try:
        done = await reader.exec(["bash", "-c", command], timeout_s=20, cwd=FILES + folder, merge_streams=True)
        return done.stdout.text()
    finally:
        await runtime.remove(reader.container_id)


@unlike_gvisor("keeps a container's files to itself")
@pytest.mark.parametrize("alive", [True, False])
async def test_its_files_are_seen_at_rest(runtime: DockerRuntime, engine: Engine, alive: bool) -> None:
    """A process of the policy's changes the tree while it is read, or a dead container's work is lost."""
    sandbox = await runtime.create(spec())
    try:
        await say(sandbox, "mkdir -p /work/a; cd /work; echo x > a/f; ln -s /etc/passwd link; chmod 0 a/f; mkfifo pipe")
        await say(sandbox, "(while :; do echo >> /work/count; done) & rm -f /bin/ls /bin/cat")
        if not alive:
            await engine.call(lambda api: (api.kill(sandbox.container_id), api.wait(sandbox.container_id)))
        seen = await runtime.inspector.freeze_or_kill(sandbox.container_id)
        assert (seen.running, seen.oom_killed) == (alive, False)
        look = "stat -c '%n %a' a/f; cat a/f; readlink link; [[ -p pipe ]] && echo pipe; stat -c %s count >&2"
        first = await found(runtime, sandbox, "/work", look)
        assert first.startswith("a/f 0\nx\n/etc/passwd\npipe\n")
        assert await found(runtime, sandbox, "/work", look) == first
        await runtime.inspector.freeze_or_kill(sandbox.container_id)
    finally:
        await runtime.remove(sandbox.container_id)


async def test_what_a_dead_container_has_no_more(runtime: DockerRuntime, engine: Engine) -> None:
    """A folder that became a link leads to files of the host, or of the reader."""
    sandbox = await runtime.create(spec())
    try:
        await say(sandbox, "mkdir /work; ln -s /etc /work/link")
        await engine.call(lambda api: (api.kill(sandbox.container_id), api.wait(sandbox.container_id)))
        for folder in ("/none", "/work/link"):
            with pytest.raises(FolderUnreadable):
                await runtime.inspector.create_reader(sandbox.container_id, _READER, folder=folder)
    finally:
        await runtime.remove(sandbox.container_id)
    with pytest.raises(SandboxLost):
        await runtime.inspector.inspect(sandbox.container_id)


@unlike_gvisor("bounds no memory with --ignore-cgroups")
async def test_the_engine_tells_of_memory(runtime: DockerRuntime, sandbox: BashSandbox, backend: Backend) -> None:
    """Counters that are read inside are what a policy writes there."""
    assert await runtime.inspector.hit_memory_limit(sandbox.container_id) is False
    assert await runtime.inspector.kills_in(sandbox.container_id) in (0, None)
    began = time.time()
    done = await sandbox.exec(["python3", "-c", "x = 'a' * 10**9"], timeout_s=200)
    assert done.exit_code == 137
    await eventually(lambda: runtime.inspector.hit_memory_limit(sandbox.container_id))
    assert await runtime.inspector.kills_in(sandbox.container_id) in (1, None)
    told = await runtime.inspector.kills_at_limits(since=began)
    assert told >= 1 or backend.name == "podman"  # it has no such event, and the container's own counter decides
