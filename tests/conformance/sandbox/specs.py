"""Specifications of the suite's containers, and ways to look into them."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

from sandbox_server.errors import SandboxExhausted
from sandbox_server.sandbox.base import ContainerSpec, Limits, Role, Sandbox, ShellResult
from tests.waiting import eventually

IMAGE = "sandbox-samples/base:latest"


def spec(**fields: Any) -> ContainerSpec:
    """A session's container; `fields` override the defaults."""
    own: dict[str, Any] = {
        "image": IMAGE,
        "role": Role.SESSION,
        "sid": "4711",
        "deadline": datetime.now(UTC) + timedelta(minutes=15),
        "workdir": "/tmp",
        "limits": Limits(memory_mb=256, cpus=2.0, pids=128, disk_mb=64),
    }
    return ContainerSpec(**own | fields)


def shown(result: ShellResult) -> str:
    """The output as text, with plain line ends."""
    return result.output.text().replace("\r\n", "\n")


async def say(sandbox: Sandbox, command: str, *, timeout_s: float = 20.0) -> str:
    """The output of `command` in the shell, without its last line end."""
    return shown(await sandbox.shell.run(command, timeout_s=timeout_s)).removesuffix("\n")


async def processes(sandbox: Sandbox) -> list[str]:
    """The command lines of all processes of the container, read through a separate channel."""
    seen = await sandbox.exec(["ps", "-eo", "stat,args"], timeout_s=20)
    lines = seen.stdout.text().splitlines()[1:]
    return [args for stat, _, args in (line.partition(" ") for line in lines) if not stat.startswith("Z")]


async def running(sandbox: Sandbox, wanted: str) -> int:
    """Number of processes of the container with `wanted` in their command line."""
    return len([args for args in await processes(sandbox) if wanted in args and not args.lstrip().startswith("ps ")])


async def gone(sandbox: Sandbox, wanted: str) -> bool:
    """Whether no process has `wanted` in its command line, now or soon (kills are asynchronous)."""
    for _ in range(100):
        with contextlib.suppress(SandboxExhausted):  # what was killed counts until its parent has noticed
            if not await running(sandbox, wanted):
                return True
        await asyncio.sleep(0.1)
    return False


async def begun(sandbox: Sandbox, wanted: str) -> None:
    """Wait until a process has `wanted` in its command line."""
    await eventually(lambda: running(sandbox, wanted))


async def there(sandbox: Sandbox, path: str) -> None:
    """Wait until the file exists."""

    async def found() -> bool:
        return (await sandbox.exec(["test", "-e", path], timeout_s=20)).exit_code == 0

    await eventually(found)
