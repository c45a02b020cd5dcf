"""Containers are found again, after a restart of the server and beside those of others."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.base import ShellOutcome
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.labels import ROLE
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from tests.live import forking

from .backends import Backend
from .specs import IMAGE, gone, running, say, shown

SERVER = """
import asyncio, importlib, json, os, sys
from datetime import datetime
from sandbox_server.sandbox.base import ContainerSpec, Limits, Role
from sandbox_server.sandbox.config import RuntimeConfig

async def main():
    names, url, node, image, deadline, command = sys.argv[1:]
    runtime_kind, engine_kind = (getattr(importlib.import_module(m), n) for m, n in map(str.split, names.split(",")))
    runtime = runtime_kind(engine_kind(url, timeout_s=60), RuntimeConfig(node=node, pull=False))
    sandbox = await runtime.create(ContainerSpec(image, Role.SESSION, "1", datetime.fromisoformat(deadline), "/tmp",
        limits=Limits(memory_mb=256, pids=128)))
    await sandbox.shell.run("cd /usr; plain=5; export KEPT=6; f() { echo func; }; sleep 815 &", timeout_s=10)
    await sandbox.write_file("/usr/kept", b"1")
    if command:
        asyncio.get_running_loop().create_task(sandbox.shell.run(command, timeout_s=60))
        await asyncio.sleep(0.3)
    print(json.dumps(sandbox.container_id), flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def _killed_server(runtime: DockerRuntime, command: str = "") -> str:
    """A container whose server was killed by SIGKILL while `command` ran."""
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    kinds = ",".join(f"{kind.__module__} {kind.__name__}" for kind in (type(runtime), type(runtime._engine)))
    own = (kinds, runtime._engine.url, runtime._config.node)
    argv = ["-c", SERVER, *own, IMAGE, deadline.isoformat(), command]
    ended = await asyncio.to_thread(forking.run, argv, os.environ)
    assert ended.returncode == -9
    return str(json.loads(ended.stdout))


async def test_reattached_idle(runtime: DockerRuntime) -> None:
    """A restart of the server would end every session on its node."""
    sandbox = await runtime.attach(await _killed_server(runtime))
    try:
        assert await sandbox.shell.settle(wait_s=5) is None
        assert (sandbox.shell.cwd, sandbox.shell.user) == ("/usr", "root")
        assert await say(sandbox, "echo $plain $KEPT $PWD; f; jobs | grep -c sleep") == "5 6 /usr\nfunc\n1"
        assert await sandbox.read_file("/usr/kept", max_bytes=9) == b"1"
        assert (await sandbox.exec(["true"], timeout_s=5)).exit_code == 0
        result = await sandbox.shell.run("sleep 4711", timeout_s=0.3)
        assert result.outcome is ShellOutcome.INTERRUPTED
        assert await gone(sandbox, "4711") and await running(sandbox, "sleep 815") == 1
        assert await runtime.attach(sandbox.container_id) is sandbox
    finally:
        await runtime.remove(sandbox.container_id)


async def test_reattached_without_settling(runtime: DockerRuntime) -> None:
    """The first action after a restart would be lost if the shell was not settled before."""
    sandbox = await runtime.attach(await _killed_server(runtime))
    try:
        assert await say(sandbox, "echo $plain $KEPT $PWD; f") == "5 6 /usr\nfunc"
    finally:
        await runtime.remove(sandbox.container_id)


async def test_reattached_to_a_command_in_flight(runtime: DockerRuntime) -> None:
    """The next action's text would go to the stdin of the command that is still running."""
    sandbox = await runtime.attach(await _killed_server(runtime, "sleep 2.5; cd /etc; echo late; (exit 3)"))
    try:
        result = await sandbox.shell.settle(wait_s=10)
        assert result is not None
        assert (result.outcome, result.exit_code, shown(result), result.cwd) == (
            ShellOutcome.FINISHED,
            3,
            "late\n",
            "/etc",
        )
        assert await say(sandbox, "echo $plain $KEPT $PWD") == "5 6 /etc"
    finally:
        await runtime.remove(sandbox.container_id)


@pytest.mark.parametrize("command", ["sleep 4711", "trap '' INT; sleep 4711; sleep 4711", "cat"])
async def test_reattached_to_a_command_that_does_not_end(
    runtime: DockerRuntime, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command left by the previous server would run forever, since its timeout is lost."""
    monkeypatch.setattr("sandbox_server.sandbox.bash.shell._SIGINT_GRACE_S", 0.5)
    sandbox = await runtime.attach(await _killed_server(runtime, command))
    try:
        result = await sandbox.shell.settle(wait_s=1)
        assert result is not None
        assert result.outcome in (ShellOutcome.INTERRUPTED, ShellOutcome.KILLED)
        assert await gone(sandbox, "4711")
        assert await running(sandbox, "sleep 815") == 1
        assert await say(sandbox, "echo $KEPT $PWD") == "6 /usr"
    finally:
        await runtime.remove(sandbox.container_id)


async def test_reattached_to_a_stopped_container(runtime: DockerRuntime, engine: Engine) -> None:
    """A container that died with its server still has its files."""
    container_id = await _killed_server(runtime)
    try:
        await engine.call(lambda api: api.kill(container_id))
        sandbox = await runtime.attach(container_id)
        result = await sandbox.shell.settle(wait_s=5)
        assert result is not None and result.outcome is ShellOutcome.RESTARTED
        assert await say(sandbox, "cat /usr/kept; pwd") == "1/tmp"
    finally:
        await runtime.remove(container_id)


async def test_containers_of_another_node_are_not_ours(backend: Backend, shared: BashSandbox) -> None:
    """Two servers on one engine would remove each other's sessions."""
    other = backend.runtime(node="test-other")
    assert await other.list() == []
    with pytest.raises(ServiceError):
        await other.attach(shared.container_id)


async def test_what_a_newer_version_made_is_left_alone(
    runtime: DockerRuntime, engine: Engine, shared: BashSandbox
) -> None:
    """A server that is taken back to the version before would not start."""
    found = await engine.call(lambda api: api.inspect_container(shared.container_id))
    labels = found["Config"]["Labels"] | {ROLE: "of-a-later-version"}
    made = await engine.call(lambda api: api.create_container(IMAGE, command=["true"], labels=labels))
    try:
        assert shared.container_id in [info.container_id for info in await runtime.list()]
        assert made["Id"] not in [info.container_id for info in await runtime.list()]
    finally:
        await engine.call(lambda api: api.remove_container(made["Id"]))
