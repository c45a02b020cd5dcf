"""The sandbox interfaces that the rest of the service uses: shell, one-off commands, files, container runtime.

No engine is imported here. `sandbox.bash` implements `Sandbox` and `Shell`; a backend implements `Runtime` and the
protocols of `sandbox.engine`. tests/conformance/sandbox tests the behaviour that every backend must have.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from sandbox_server.sandbox.config import EngineFacts as EngineFacts
from sandbox_server.sandbox.container import DEFAULT_ACTIVATION as DEFAULT_ACTIVATION
from sandbox_server.sandbox.container import ContainerInfo as ContainerInfo
from sandbox_server.sandbox.container import ContainerSpec as ContainerSpec
from sandbox_server.sandbox.container import CpuTime as CpuTime
from sandbox_server.sandbox.container import Limits as Limits
from sandbox_server.sandbox.container import Role as Role
from sandbox_server.sandbox.egress import Egress
from sandbox_server.sandbox.filesystem import FileSystem
from sandbox_server.sandbox.image import Build as Build
from sandbox_server.sandbox.image import ImageInfo as ImageInfo
from sandbox_server.sandbox.image import Images as Images
from sandbox_server.sandbox.image import StoredImage as StoredImage
from sandbox_server.sandbox.inspector import ContainerInspector
from sandbox_server.sandbox.output import ExecResult as ExecResult
from sandbox_server.sandbox.output import Output as Output
from sandbox_server.sandbox.process import Process as Process  # part of what a sandbox is; its own file for its size
from sandbox_server.sandbox.process import ProcessEnd as ProcessEnd
from sandbox_server.sandbox.process import Size as Size
from sandbox_server.sandbox.process import Stream as Stream
from sandbox_server.sandbox.services import Services as Services
from sandbox_server.sandbox.shell import Shell as Shell
from sandbox_server.sandbox.shell import ShellOutcome as ShellOutcome
from sandbox_server.sandbox.shell import ShellResult as ShellResult


class Sandbox(FileSystem, Protocol):
    """One container: a persistent shell, one-off commands, and files (see `FileSystem`)."""

    @property
    def container_id(self) -> str:
        """The engine's full id."""
        ...

    @property
    def shell(self) -> Shell:
        """The persistent shell; only if the sandbox was created with one."""
        ...

    @property
    def boot_s(self) -> Mapping[str, float]:
        """Seconds per stage of its creation (`create`, `shell`); empty for an attached sandbox."""
        ...

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
        """Start `argv` outside the shell; it is running when this returns.

        `cwd`: working directory, by default the container's. `env`: added to the container's environment.
        `user`: name or number (`name[:group]`), by default root. `stdin`: keep the process's stdin open for writing;
        else it is at end of file. `timeout_s`: seconds until the process and all its descendants are killed; None:
        never. `home_cwd`: start as a login of the user, with its HOME, USER and LOGNAME; `cwd` is relative to its home.
        A missing program or folder is no error here: the process ends with status 127 or 126 and the reason on stderr,
        as in a shell.

        Raises:
            UnknownUser: the container has no such user; nothing ran. MalformedRequest: a NUL byte, or no command.
            SandboxLost: the container is not running. SandboxExhausted: it can take no further process.
            EngineUnavailable: the daemon does not answer. When the caller is cancelled, no process is left.

        """
        ...

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
        """Run `argv` outside the shell; past `timeout_s` seconds kill it and its descendants.

        Keeps the first and the last `keep_bytes` / 2 of each stream, also when `timed_out`.
        `merge_streams`: stderr is written to stdout, in order.

        Raises:
            SandboxLost: the container is not running, or ended while the command ran.
            SandboxExhausted: it can take no further process (PID or memory limit).
            UnknownUser: the container has no such user. EngineUnavailable: the daemon does not answer.

        """
        ...

    async def stand_by(self, commands: int) -> None:
        """Start `commands` processes that wait to become the next commands that `exec` runs as root.

        Those commands then start at once instead of after some 60 ms; nothing else differs. Only for containers in
        which no process of the policy runs yet: it could see and kill the waiting processes.

        Raises:
            SandboxLost, SandboxExhausted, EngineUnavailable: see `exec`.

        """
        ...

    async def restart(self) -> None:
        """Kill every process and start the container again, with a new shell; its files are kept."""
        ...

    async def read_file(self, path: str, *, max_bytes: int, user: str = "") -> bytes:
        """Return the file's bytes, as `user` may read them; "": root.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: from the file system.
            OverflowError: the file is longer than `max_bytes`.

        """
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int | None = None, user: str = "") -> None:
        """Create or truncate a file and write `data`; an existing file keeps its mode, missing parent folders are made.

        Done by `user`; "": root.

        Raises:
            IsADirectoryError, PermissionError, NotADirectoryError: from the file system.
            FileNotFoundError: the name is not possible. SandboxDiskFull: no space, or past the file size limit.

        """
        ...


class Runtime(Protocol):
    """Creates, finds and removes containers on one engine; implemented by each backend.

    Every method that calls the engine also raises EngineUnavailable if it does not answer in time.

    Containers are identified by the engine's full id.
    """

    @property
    def inspector(self) -> ContainerInspector:
        """Inspects containers without running anything in them."""
        ...

    @property
    def images(self) -> Images:
        """The engine's images."""
        ...

    @property
    def services(self) -> Services:
        """The services beside the sandboxes."""
        ...

    @property
    def fault(self) -> str:
        """Why the engine is considered unavailable; "" if it answers. Makes no call and raises nothing."""
        ...

    async def create(self, spec: ContainerSpec) -> Sandbox:
        """Create and start a container; if it has a shell, the shell is ready when this returns.

        Its services run and are healthy before it starts. Leaves no container behind when it raises or the caller is
        cancelled.

        Raises:
            ImageUnavailable: the image is not on the engine, its container ended before the shell was ready, or a
                service did not come up.
            EgressUnavailable: the network restrictions could not be applied.
            SandboxDiskFull: the engine's disk is full.

        """
        ...

    async def attach(self, container_id: str) -> Sandbox:
        """Return the sandbox of an existing container; while it is open in this process, always the same object.

        Raises:
            SandboxLost: this node has no such container, or somebody else started it without its restrictions.
            EgressUnavailable: its network restrictions could not be applied again.

        """
        ...

    async def list(self) -> list[ContainerInfo]:
        """All containers of this node, running or not, and those that a CLI command on this node left behind."""
        ...

    async def remove(self, container_id: str) -> None:
        """Kill and remove the container, then its services; no error if it is already gone."""
        ...

    async def remove_leftovers(self) -> int:
        """Remove services, volumes and networks of this node's sandboxes that are gone; returns of how many sandboxes.

        Those that are being made in this process are not touched.
        """
        ...

    async def assign(self, container_id: str, sid: str) -> None:
        """Give a container that was created ahead, under another sid, to the session `sid`; `list` then shows `sid`.

        Raises:
            SandboxLost: there is no such container.

        """
        ...

    async def cpu_times(self, container_ids: Iterable[str]) -> Mapping[str, float]:
        """Container id -> CPU seconds of all its processes since its start; stopped containers are left out.

        A sandbox cannot hide this use. For gVisor without control groups nothing is known, so its containers are left
        out.
        """
        ...

    async def weigh(self) -> None:
        """Lower the CPU weight of sandboxes that compute without a pause on a busy host, or restore it.

        To be called about once a second. Does nothing where the engine runs on another host. Raises EngineUnavailable.
        """
        ...

    def take_last_cpu_times(self) -> Sequence[CpuTime]:
        """Last readings of sessions' containers removed since the last call; only if the runtime was told to meter."""
        ...

    async def connect(self, container_id: str, *, on: bool) -> bool:
        """Connect a container to its network, or disconnect it. Returns False if it was created without a network.

        Raises:
            SandboxLost: there is no such container.

        """
        ...

    async def restrict(self, container_id: str, egress: Egress | None) -> None:
        """Set what a running session's container may reach from now on; None: the rules for all sessions.

        Raises:
            EgressUnavailable: the new rules are not in place; the previous ones still hold.
            MalformedRequest: they allow names below a domain, and its rules did not when it was created.
            SandboxLost: there is no such container, or it is not running.

        """
        ...

    async def refused(self, container_id: str) -> int | None:
        """Packets and name queries that a container's egress rules have refused since its creation. Raises nothing.

        None: no rules restrict it. Takes 0.2 s if this server may not enter the container's network namespace.
        """
        ...

    async def pause(self, container_id: str) -> None:
        """Freeze all of its processes. Memory, files and streams are kept; the time limits of commands stand still.

        Until `unpause` its sandbox raises SandboxPaused. No error if it is already frozen.

        Raises:
            SandboxLost: there is no such container, or it is not running.
            EngineUnavailable: the engine does not answer, or the host cannot freeze it.

        """
        ...

    async def unpause(self, container_id: str) -> None:
        """Let its processes run again; no error if they do.

        Raises:
            SandboxLost: there is no such container.

        """
        ...

    async def disk_usage(self, container_id: str = "") -> dict[str, int]:
        """Bytes in the writable layer by container id: of every container of this node, or of the one given.

        Slow: an engine may look at every file, about 0.1 s for ten thousand. Containers that are gone are left out.
        """
        ...

    # ---- the engine

    async def ping(self) -> None:
        """Return if the engine answers."""
        ...

    async def probe_engine(self, *, timeout_s: float) -> None:
        """If the engine did not answer the last call, ask it again for at most `timeout_s` (at least 2 s).

        Updates `fault`. Makes no call if there is no fault; raises nothing.
        """
        ...

    async def facts(self) -> EngineFacts:
        """The engine's description of itself and its host."""
        ...

    async def watch_egress(self) -> None:
        """Kill restricted containers that somebody else starts, until the engine ends its event stream.

        Raises nothing.
        """
        ...

    def close(self) -> None:
        """Close all streams and the connection to the engine; leave the containers as they are."""
        ...
