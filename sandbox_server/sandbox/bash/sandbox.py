"""One container as a `sandbox.base.Sandbox`."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sandbox_server import telemetry
from sandbox_server.errors import EngineUnavailable, SandboxLost, SandboxPaused
from sandbox_server.sandbox.base import ExecResult, Process, Size
from sandbox_server.sandbox.bash import files
from sandbox_server.sandbox.bash.clock import SandboxClock
from sandbox_server.sandbox.bash.exec_channels import ExecChannels
from sandbox_server.sandbox.bash.exec_request import ExecRequest
from sandbox_server.sandbox.bash.fifos import Fifos
from sandbox_server.sandbox.bash.filesystem import BashFileSystem
from sandbox_server.sandbox.bash.filesystem_channels import FileSystemChannels
from sandbox_server.sandbox.bash.shell import BashShell
from sandbox_server.sandbox.bash.terminal import Terminal
from sandbox_server.sandbox.engine import Container

log = telemetry.logger(__name__)

_LOOK_S = 2.0  # at the container, before its command is stopped
_RESTARTS = 20  # per container; after that, something is wrong that a restart does not fix


class BashSandbox(BashFileSystem):
    """One container as a `Sandbox`: its shell, its commands and its files."""

    def __init__(
        self,
        container: Container,
        token: str,
        *,
        shared_channels: bool,
        login_cache: bool = True,
        fifos: Fifos | None = None,
    ) -> None:
        """`token`: the secret that authenticates boot.bash's notices. `fifos`: those that the container sees.

        `shared_channels=False`: for gradings, so that no command can forge its exit status.
        `login_cache`: see `RuntimeConfig`.
        """
        self.clock = SandboxClock()
        self._file_channels = FileSystemChannels(container, self.clock)
        self._others_channels: dict[str, FileSystemChannels] = {}
        """Of other users than root."""
        super().__init__(self._file_channels)
        self._container = container
        self.token = token
        self.fifos = fifos
        self._exec_channels = ExecChannels(
            container, self.clock, shared=shared_channels, login_cache=login_cache and shared_channels
        )
        self._restarts = 0
        self.boot_s: Mapping[str, float] = {}
        self._shell = BashShell(
            open_terminal=self._reattach, signal=container.signal, restart=self._restart, check=self._not_frozen
        )

    @property
    def container_id(self) -> str:
        """The engine's full id."""
        return self._container.id

    @property
    def shell(self) -> BashShell:
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
        request = ExecRequest(
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
        return await self._exec_channels.start(request)

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
        request = ExecRequest(
            argv,
            cwd=cwd,
            env=env or {},
            user=user,
            stdin=bool(stdin),
            timeout_s=timeout_s,
            merge_streams=merge_streams,
        )
        return await self._exec_channels.run(request, stdin, keep_bytes)

    async def stand_by(self, commands: int) -> None:
        """See `sandbox.base.Sandbox.stand_by`."""
        await self._exec_channels.open_ahead(commands)

    async def read_file(self, path: str, *, max_bytes: int, user: str = "") -> bytes:
        """See `sandbox.base.Sandbox.read_file`."""
        return await files.read(self._channels_of(user), path, max_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int | None = None, user: str = "") -> None:
        """See `sandbox.base.Sandbox.write_file`."""
        await files.write(self._channels_of(user), path, data, mode)

    def _channels_of(self, user: str) -> FileSystemChannels:
        if not user:
            return self._file_channels
        if user not in self._others_channels:
            self._others_channels[user] = FileSystemChannels(self._container, self.clock, user=user)
        return self._others_channels[user]

    def _close_channels(self) -> None:
        for channels in (self._file_channels, *self._others_channels.values()):
            channels.close()
        self._exec_channels.close()

    async def restart(self) -> None:
        """See `sandbox.base.Sandbox.restart`."""
        await self._shell.restart()

    async def boot(self) -> None:
        """Start the created container; its shell is ready on return."""
        terminal = await self._start()
        started = time.monotonic()
        await self._shell.start(terminal)
        self.boot_s = {"shell": time.monotonic() - started}
        telemetry.SHELLS.labels("fifos" if terminal.direct else "engine").inc()

    async def begin(self) -> None:
        """Start the created or stopped container without waiting for a shell. Raises as `Container.start`."""
        await self._container.start()

    def close(self) -> None:
        """Close all streams; leave the container as it is."""
        self._shell.close()
        self._close_channels()

    async def _start(self) -> Terminal:
        if self.fifos is not None:
            try:
                self.fifos.make()
            except OSError as e:  # without them boot.bash uses the engine's stream
                log.warning("a container's FIFOs cannot be made", error=str(e))
        terminal = await self._attach()
        try:
            await self.begin()
        except BaseException:
            terminal.close()
            raise
        # if the container ended at once (no bash), whoever waits for the shell reports it
        if not terminal.is_open and (await self._container.state()).running:
            raise EngineUnavailable("the engine closed a new container's terminal; look at the daemon's log")
        terminal.begin(self.token)
        return terminal

    async def _attach(self) -> Terminal:
        terminal = Terminal(self.token, self._shell, self.fifos)
        terminal.open_fifos()
        try:
            await self._container.attach(terminal)
        except BaseException:
            terminal.close()
            raise
        return terminal

    async def _reattach(self, shell: BashShell) -> Terminal:
        if not (await self._container.state()).running:
            raise SandboxLost(f"the container {self.container_id[:12]} is not running")
        return await self._attach()

    async def _not_frozen(self) -> None:
        """Raises SandboxPaused. An engine that does not answer is not waited for: the shell itself needs none."""
        with suppress(SandboxLost, EngineUnavailable, TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                if not (await self._container.state()).frozen:
                    return
            raise SandboxPaused(
                "the session's container is frozen, by `docker pause` or because the session is being ended; what ran"
                " in it goes on once it is resumed (`docker unpause`)"
            )

    async def _restart(self, shell: BashShell) -> tuple[Terminal, bool]:
        self._restarts += 1
        if self._restarts > _RESTARTS:
            raise SandboxLost(f"the container died {_RESTARTS} times; it is not started again")
        state = await self._container.state()
        if state.running:
            await self._container.kill()
        self._close_channels()
        return await self._start(), state.oom_killed
