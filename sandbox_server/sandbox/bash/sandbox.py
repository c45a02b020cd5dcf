"""One container as a `sandbox.base.Sandbox`."""

import time
from collections.abc import Mapping, Sequence

from sandbox_server.errors import EngineUnavailable, SandboxLost
from sandbox_server.sandbox.base import ExecResult, Process, Size
from sandbox_server.sandbox.bash.exec_channels import Lanes
from sandbox_server.sandbox.bash.exec_request import Order
from sandbox_server.sandbox.bash.files import Files
from sandbox_server.sandbox.bash.filesystem import DockerTree
from sandbox_server.sandbox.bash.filesystem_channels import TreeLanes
from sandbox_server.sandbox.bash.freezing import Thawed
from sandbox_server.sandbox.bash.shell import DockerShell
from sandbox_server.sandbox.bash.terminal import Terminal
from sandbox_server.sandbox.docker.egress import Guard
from sandbox_server.sandbox.docker.engine import Engine, follow

_RESTARTS = 20  # of one container; past it something is wrong that a restart does not mend


class DockerSandbox(DockerTree):
    """A container of ours; knows how to reach it, not when it ends."""

    def __init__(
        self, engine: Engine, container_id: str, token: str, *, shared_lanes: bool, guard: Guard, rules: str
    ) -> None:
        """`shared_lanes=False`: what runs there may not be able to forge its own exit status (a grading).

        `rules`: what `guard` has in place whenever it is started; "": none.
        """
        self.clock = Thawed()
        self._tree_lanes = TreeLanes(engine, container_id, self.clock)
        super().__init__(self._tree_lanes)
        self._engine = engine
        self._container_id = container_id
        self._guard = guard
        self.token = token
        self.rules = rules
        self._files = Files(engine, container_id)
        self._lanes = Lanes(engine, container_id, self.clock, shared=shared_lanes)
        self._restarts = 0
        self.boot_s: Mapping[str, float] = {}
        self._shell = DockerShell(open_terminal=self._reattach, signal=self._signal, restart=self._restart)

    @property
    def container_id(self) -> str:
        """The engine's full id."""
        return self._container_id

    @property
    def shell(self) -> DockerShell:
        """The persistent shell."""
        return self._shell

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bool = False,
        pty: Size | None = None,
        timeout_s: float | None = None,
        home_cwd: bool = False,
        merge_streams: bool = False,
    ) -> Process:
        """See `sandbox.base.Sandbox.start`."""
        order = Order(
            argv,
            cwd=cwd,
            env=env or {},
            user=user,
            stdin=stdin,
            pty=pty,
            timeout_s=timeout_s,
            home_cwd=home_cwd,
            merge_streams=merge_streams,
        )
        return await self._lanes.start(order)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        merge_streams: bool = False,
        keep_bytes: int = 1 << 20,
    ) -> ExecResult:
        """See `sandbox.base.Sandbox.exec`."""
        order = Order(
            argv,
            cwd=cwd,
            env=env or {},
            user=user,
            stdin=bool(stdin),
            timeout_s=timeout_s,
            merge_streams=merge_streams,
        )
        return await self._lanes.run(order, stdin, keep_bytes)

    async def stand_by(self, commands: int) -> None:
        """See `sandbox.base.Sandbox.stand_by`."""
        await self._lanes.open_ahead(commands)

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """See `sandbox.base.Sandbox.read_file`."""
        return await self._files.read(path, max_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """See `sandbox.base.Sandbox.write_file`."""
        await self._files.write(path, data, mode)

    async def restart(self) -> None:
        """See `sandbox.base.Sandbox.restart`."""
        await self._shell.restart()

    async def boot(self) -> None:
        """Start the created container; its shell is ready on return."""
        terminal = await self._start()
        started = time.monotonic()
        await self._shell.start(terminal)
        self.boot_s = {"shell": time.monotonic() - started}

    async def begin(self) -> None:
        """Start the created or ended container, restricted before anything runs in it. Raises as `Guard.start`."""
        if self.rules:
            await self._guard.start(self._container_id, self.rules)
        else:
            await self._engine.call(lambda api: api.start(self._container_id))

    def close(self) -> None:
        """Let go of all streams; the container is left as it is."""
        self._shell.close()
        self._files.close()
        self._tree_lanes.close()
        self._lanes.close()

    async def _start(self) -> Terminal:
        terminal = await self._attach()
        try:
            await self.begin()
        except BaseException:
            terminal.close()
            raise
        if not terminal.is_open:
            raise EngineUnavailable("the engine closed a new container's terminal; look at the daemon's log")
        terminal.write(self.token.encode() + b"\n")
        return terminal

    async def _attach(self) -> Terminal:
        sock, first = await self._engine.hijack(
            f"/containers/{self._container_id}/attach?stream=1&stdin=1&stdout=1&stderr=1"
        )
        terminal = Terminal(self.token, self._shell)
        await follow(sock, terminal)
        if first:
            terminal.data_received(first)
        return terminal

    async def _reattach(self, shell: DockerShell) -> Terminal:
        state = await self._state()
        if not state["Running"]:
            raise SandboxLost(f"the container {self._container_id[:12]} is not running")
        return await self._attach()

    async def _signal(self, name: str) -> None:
        await self._engine.call(lambda api: api.kill(self._container_id, name))

    async def _restart(self, shell: DockerShell) -> tuple[Terminal, bool]:
        self._restarts += 1
        if self._restarts > _RESTARTS:
            raise SandboxLost(f"the container died {_RESTARTS} times; it is not started again")
        state = await self._state()
        if state["Running"]:
            await self._engine.call(lambda api: api.kill(self._container_id, "KILL"))
            await self._engine.call(lambda api: api.wait(self._container_id, timeout=30))
        self._files.close()
        self._tree_lanes.close()
        self._lanes.close()
        return await self._start(), bool(state["OOMKilled"])

    async def _state(self) -> dict[str, object]:
        found: dict[str, dict[str, object]] = await self._engine.call(
            lambda api: api.inspect_container(self._container_id)
        )
        return found["State"]
