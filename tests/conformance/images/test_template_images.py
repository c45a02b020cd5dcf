"""A template's start and ready commands, in a container of an image that lacks programs which E2B's images have."""

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from sandbox_server.catalogue.templates import Result
from sandbox_server.images.template_images import NotReady, start_ready
from sandbox_server.sandbox.base import ContainerSpec, Limits, Role, Sandbox
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.runtime import DockerRuntime, RuntimeConfig
from tests.deployment import BASE_IMAGE

LIMITS = Limits(memory_mb=256, cpus=1.0, pids=64, disk_mb=64)
PORTS = """
import socket, time
time.sleep(0.3)
tcp, udp = socket.create_server(("::1", 8123), family=socket.AF_INET6), socket.socket(type=socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 8124))
time.sleep(60)
"""


@pytest.fixture
async def sandbox(sample_images: dict[str, str]) -> AsyncIterator[Sandbox]:
    """A container of the samples' base, which has no `ss`."""
    config = RuntimeConfig(node=f"test-ready-{secrets.token_hex(4)}", pull=False)
    runtime = DockerRuntime(Engine(None, timeout_s=60), config)
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    sandbox = await runtime.create(ContainerSpec(BASE_IMAGE, Role.PREPARE, "", deadline, limits=LIMITS))
    yield sandbox
    await runtime.remove(sandbox.container_id)
    runtime.close()


async def ready(sandbox: Sandbox, start: str, command: str, within_s: float = 60.0) -> None:
    await start_ready(sandbox, Result(start=start, ready=command), env={}, user="root", within_s=within_s)


@pytest.mark.parametrize("port", [8123, 8124], ids=["tcp", "udp"])
async def test_a_port_is_waited_for(sandbox: Sandbox, port: int) -> None:
    """waitForPort asks `ss`, which most images lack: the template would never be ready."""
    await ready(sandbox, f"exec python3 -c '{PORTS}'", f'[ -n "$(ss -Htuln sport = :{port})" ]')
    await ready(sandbox, "true", f"ss -tuln | grep :{port}")  # as SDKs before 2.20 ask
    with pytest.raises(NotReady, match="exit code 1, no output"):
        await ready(sandbox, "true", f'[ -n "$(ss -Htuln sport = :{port // 10})" ]', within_s=3.0)


async def test_why_a_template_is_not_ready(sandbox: Sandbox) -> None:
    """The author sees what the ready command said, such as a program that the image lacks, and the start command."""
    with pytest.raises(NotReady) as told:
        await ready(sandbox, "echo begun", "echo 'I look.'; no-such-program", within_s=1.0)
    assert "exit code 127, I look.\n" in told.value.detail and "no-such-program: command not found" in told.value.detail
    assert told.value.detail.endswith("the start command said: begun")
