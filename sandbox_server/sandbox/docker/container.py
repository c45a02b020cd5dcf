"""One container of a Docker engine as `sandbox.engine.Container`."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandbox_server.errors import SandboxLost
from sandbox_server.sandbox.bash.fifo_stream import FifoStream
from sandbox_server.sandbox.docker.egress import Guard
from sandbox_server.sandbox.docker.engine import Engine, follow
from sandbox_server.sandbox.docker.exec_stream import DockerExecStream
from sandbox_server.sandbox.engine import ContainerState, ExecStream

_END_S = 30  # from SIGKILL until the daemon has noted the end, on a busy host


class DockerContainer:
    """Implements `sandbox.engine.Container`."""

    def __init__(self, engine: Engine, guard: Guard, container_id: str, folder: Path | None = None) -> None:
        """`folder`: for FIFOs that carry the streams of its processes."""
        self._engine = engine
        self._folder = folder
        self._guard = guard
        self._id = container_id

    @property
    def id(self) -> str:
        """See `Container.id`."""
        return self._id

    async def attach(self, terminal: asyncio.Protocol) -> None:
        """See `Container.attach`."""
        sock, first = await self._engine.hijack(f"/containers/{self._id}/attach?stream=1&stdin=1&stdout=1&stderr=1")
        await follow(sock, terminal)
        if first:
            terminal.data_received(first)

    async def start(self) -> None:
        """See `Container.start`."""
        await self._guard.start(self._id)

    async def exec(self, argv: Sequence[str], *, user: str, tty: bool = False) -> ExecStream:
        """See `Container.exec`."""

        async def start(words: Sequence[str]) -> ExecStream:
            return await DockerExecStream.open(self._engine, self._id, words, user=user, tty=tty)

        if self._folder is None or tty:
            return await start(argv)
        return await FifoStream.open(self._folder, argv, start)

    async def signal(self, name: str) -> None:
        """See `Container.signal`."""
        await self._engine.call(lambda api: api.kill(self._id, name))

    async def kill(self) -> None:
        """See `Container.kill`."""
        with suppress(SandboxLost):  # it has ended already; if it does not exist, the next call raises
            await self._engine.call(lambda api: api.kill(self._id, "KILL"))
        await self._engine.call(lambda api: api.wait(self._id, timeout=_END_S))

    async def state(self) -> ContainerState:
        """See `Container.state`."""
        state = (await self._inspect())["State"]
        return ContainerState(bool(state["Running"]), bool(state["OOMKilled"]), bool(state.get("Paused")))

    async def workdir(self) -> str:
        """See `Container.workdir`."""
        return str((await self._inspect())["Config"].get("WorkingDir") or "/")

    async def _inspect(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._engine.call(lambda api: api.inspect_container(self._id))
        return found
