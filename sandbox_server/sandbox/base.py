"""What a sandbox is to the rest of the service: a shell, one-off commands and files; and who makes them.

Nothing here knows an engine. `sandbox.bash` implements `Sandbox` and `Shell`; a backend implements `Runtime` and
`sandbox.engine`. tests/conformance/sandbox holds the behaviours that each backend must show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sandbox_server.sandbox.config import EngineFacts as EngineFacts
from sandbox_server.sandbox.container import DEFAULT_ACTIVATION as DEFAULT_ACTIVATION
from sandbox_server.sandbox.container import ContainerInfo as ContainerInfo
from sandbox_server.sandbox.container import ContainerSpec as ContainerSpec
from sandbox_server.sandbox.container import Limits as Limits
from sandbox_server.sandbox.container import Role as Role
from sandbox_server.sandbox.egress import Egress
from sandbox_server.sandbox.filesystem import FileSystem
from sandbox_server.sandbox.image import ImageInfo as ImageInfo
from sandbox_server.sandbox.image import StoredImage as StoredImage
from sandbox_server.sandbox.output import ExecResult as ExecResult
from sandbox_server.sandbox.output import Output as Output
from sandbox_server.sandbox.outside import Outside
from sandbox_server.sandbox.process import Process as Process  # part of what a sandbox is; its own file for its size
from sandbox_server.sandbox.process import ProcessEnd as ProcessEnd
from sandbox_server.sandbox.process import Size as Size
from sandbox_server.sandbox.process import Stream as Stream


class ShellOutcome(StrEnum):
    """How a command in the persistent shell came back."""

    FINISHED = "finished"
    RUNNING = "running"
    """Soft timeout: it goes on; poll, send text or interrupt."""
    INTERRUPTED = "interrupted"
    """Hard timeout, and SIGINT ended it; no process of it is left."""
    KILLED = "killed"
    """Hard timeout, SIGINT did not end it, it was killed; no process of it is left."""
    SHELL_ENDED = "shell_ended"
    """The command ended the shell itself; a new one stands in the last cwd with the last environment."""
    RESTARTED = "restarted"
    """All processes of the sandbox were killed (kill -9 -1, out of memory); files and cwd are kept."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """One command in the persistent shell, and where the shell stands after it."""

    output: Output
    """What the terminal showed, `\\r\\n` line ends kept, without echo, prompt or markers."""
    outcome: ShellOutcome
    exit_code: int
    """-1 while RUNNING; 130 after INTERRUPTED; 137 after KILLED."""
    cwd: str
    user: str
    python: str
    """Path of `python` as the shell would find it, "" when there is none."""
    duration_s: float
    shell_replaced: bool = False
    """The shell is a new one: functions, aliases and unexported variables are gone."""
    restarted: bool = False
    """All processes had been killed, before the command or by it: exported variables are gone too, files are kept."""
    oom_killed: bool = False


class Shell(Protocol):
    """The persistent bash of a sandbox, on a terminal. One command at a time; the caller holds the session's lock."""

    @property
    def cwd(self) -> str:
        """Where the shell stands; "" before its first command after `attach`."""
        ...

    @property
    def running(self) -> bool:
        """A command was left running by a soft timeout, and its end was not told yet."""
        ...

    async def run(
        self, command: str, *, timeout_s: float, soft_timeout_s: float | None = None, since_mark: bool = True
    ) -> ShellResult:
        """Run `command` (any bash text without NUL) in the shell.

        Past `timeout_s`: SIGINT, then kill; every process begun since the action began is gone,
        those of earlier actions live on. `since_mark=False`: this command belongs to the same action as the
        previous one, so what that one started counts as begun in this action.
        With `soft_timeout_s` it is left running instead, outcome RUNNING.

        Raises:
            SandboxLost: the container is gone. EngineUnavailable: the daemon does not answer.

        """
        ...

    async def poll(self, *, wait_s: float) -> ShellResult:
        """More output of a RUNNING command: waits at most `wait_s` for it to end."""
        ...

    async def send(self, text: str, *, wait_s: float) -> ShellResult:
        """Write `text` and a newline to the RUNNING command's terminal, then as `poll`.

        When the command has ended meanwhile, `text` is run as the next one, after what was left of its output.
        """
        ...

    async def settle(self, *, wait_s: float) -> ShellResult | None:
        """After `attach`: wait for a command that a former server left in flight, then stop it; None when idle."""
        ...

    async def interrupt(self, *, wait_s: float) -> ShellResult:
        """Send SIGINT to the RUNNING command, then as `poll`; what ignores it is killed."""
        ...


class Sandbox(FileSystem, Protocol):
    """One container: a persistent shell, one-off commands, files (`FileSystem`: as users see them)."""

    @property
    def container_id(self) -> str:
        """The engine's full id."""
        ...

    @property
    def shell(self) -> Shell:
        """The persistent shell (only of a sandbox created with one)."""
        ...

    @property
    def boot_s(self) -> Mapping[str, float]:
        """Seconds that its making took by stage: create, shell; empty for one that was attached to."""
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
        """Begin `argv` apart from the shell; it runs when this returns.

        `cwd`: where it begins; without one the container's folder. `env`: beside the container's. `user`: a name or
        number (`name[:group]`), root without one. `stdin`: it can be written to; without it, it reads an end at once.
        `timeout_s`: past it, it and all that began in it are killed; None: never. `home_cwd`: as a login of the user,
        with its HOME, USER and LOGNAME, and its home as the folder that `cwd` is taken from. A program that is not
        there, or a folder, is told by the process's end (127, 126, and the reason on stderr), as a shell does.

        Raises:
            UnknownUser: the container has no such user; nothing ran. MalformedRequest: a NUL byte, or no command.
            SandboxLost: the container is not running. SandboxExhausted: it can take no further process.
            EngineUnavailable: no answer from the daemon. Cancelled: nothing of it is left.

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
        """Run `argv` apart from the shell; past `timeout_s` kill it and its children.

        Keeps the first and last `keep_bytes` / 2 of each stream, also when `timed_out`.
        `merge_streams`: stderr goes into stdout, in order.

        Raises:
            SandboxLost: the container is not running, or ended while the command ran.
            SandboxExhausted: it can take no further process (PID or memory limit).
            UnknownUser: the container has no such user. EngineUnavailable: no answer from the daemon.

        """
        ...

    async def stand_by(self, commands: int) -> None:
        """Have as many processes wait to become the next commands that `exec` runs as root.

        Those begin at once, where starting a process in a container takes some 60 ms; nothing else differs. For
        containers in which nothing of the policy's runs yet: it could see them and end them.

        Raises:
            SandboxLost, SandboxExhausted, EngineUnavailable: as of `exec`.

        """
        ...

    async def restart(self) -> None:
        """Kill every process and start the container again; its files are kept, its shell is a new one."""
        ...

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        """The file's bytes.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: as of the file system.
            OverflowError: it is longer than `max_bytes`.

        """
        ...

    async def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write (create or truncate; an existing file keeps its mode); parent folders are made.

        Raises:
            IsADirectoryError, PermissionError, NotADirectoryError: as of the file system.
            FileNotFoundError: no file can have this name. SandboxDiskFull: no room, or longer than a file may be.

        """
        ...


class Runtime(Protocol):
    """Makes, finds and removes containers on one engine, and keeps its images: what a backend implements.

    Every method that asks the engine raises EngineUnavailable if it does not answer in time, beside what it names.

    A container is named by the engine's full id.
    """

    @property
    def outside(self) -> Outside:
        """Looks at containers without running anything in them."""
        ...

    @property
    def fault(self) -> str:
        """What is wrong while the engine does not answer; "" otherwise. Asks nothing and raises nothing."""
        ...

    async def create(self, spec: ContainerSpec) -> Sandbox:
        """Create and start a container; its shell, if it has one, is ready when this returns.

        Nothing is left behind when this raises, nor when the caller is cancelled.

        Raises:
            ImageUnavailable: the image is not on the engine, or a container of it ends before its shell is ready.
            EgressUnavailable: what restricts its network could not be put in place.
            SandboxDiskFull: the engine's disk is full.

        """
        ...

    async def attach(self, container_id: str) -> Sandbox:
        """The sandbox of an existing container, also one of a former server's; the same object while it is open here.

        Raises:
            SandboxLost: there is no such container of this node, or others started it without its restrictions.
            EgressUnavailable: its restrictions could not be put in place again.

        """
        ...

    async def list(self) -> list[ContainerInfo]:
        """All containers of this node, running or not, and those that a command line of this node left behind."""
        ...

    async def remove(self, container_id: str) -> None:
        """Kill and remove the container; no error when it is gone already."""
        ...

    async def connect(self, container_id: str, *, on: bool) -> bool:
        """Connect a container to its network, or disconnect it; False: it was created without a network.

        Raises:
            SandboxLost: there is no such container.

        """
        ...

    async def restrict(self, container_id: str, egress: Egress | None) -> None:
        """Set what a running session's container may reach from now on; None: what every session may.

        Raises:
            EgressUnavailable: the rules are not in place; those before still hold.
            SandboxLost: there is no such container, or it does not run.

        """
        ...

    async def pause(self, container_id: str) -> None:
        """Freeze all of its processes; memory, files and streams are kept, time limits of commands stand still.

        Until `unpause` its sandbox raises SandboxPaused. No error when it is frozen already.

        Raises:
            SandboxLost: there is no such container, or it does not run.
            EngineUnavailable: also where the host cannot freeze it.

        """
        ...

    async def unpause(self, container_id: str) -> None:
        """Let its processes go on; no error when they run.

        Raises:
            SandboxLost: there is no such container.

        """
        ...

    async def disk_usage(self, container_id: str = "") -> dict[str, int]:
        """Bytes in the writable layer, by container: of each of this node, or of one.

        Slow: an engine may look at every file for it, some 0.1 s for ten thousand. A container that is gone is left
        out.
        """
        ...

    # ---- images

    async def resolve_image(self, candidates: Sequence[str]) -> ImageInfo:
        """The first of `candidates` that is on the engine, else the first that can be pulled.

        Raises:
            ImageUnavailable: none is; its `absent` says whether a registry has said that it has none of them.

        """
        ...

    async def find_image(self, name: str) -> ImageInfo | None:
        """The image, if it is on the engine; never pulls."""
        ...

    async def images(self) -> Sequence[ImageInfo]:
        """All images on the engine, one for each of their names."""
        ...

    async def stored_images(self) -> Sequence[StoredImage]:
        """Every image on the engine that has a name."""
        ...

    async def commit(self, container_id: str, name: str, labels: Mapping[str, str]) -> ImageInfo:
        """Make the image `name` of the container's files; its labels are kept, and `labels` added.

        Raises:
            SandboxLost: there is no such container. SandboxDiskFull: the engine's disk is full.

        """
        ...

    async def remove_image(self, name: str) -> bool:
        """Remove the name, and with its last name the image; no error when it is gone already.

        False: it is still there, because a container needs it or the engine did not do it. Raises nothing.
        """
        ...

    def take_image_uses(self) -> dict[str, float]:
        """Names of the images that were resolved or started from since the last call, and when (Unix seconds)."""
        ...

    # ---- the engine

    async def ping(self) -> None:
        """Return if the engine answers."""
        ...

    async def probe_engine(self, *, timeout_s: float) -> None:
        """Ask an engine that has not answered whether it does again, for at most `timeout_s` (at least 2 s).

        `fault` tells the answer. Asks nothing while there is no fault, and raises nothing.
        """
        ...

    async def facts(self) -> EngineFacts:
        """What the engine says of itself and its host."""
        ...

    async def watch_images(self) -> None:
        """Listen to the engine's changes of images until it ends the stream or does not answer; raises nothing.

        While this runs, images once found are not looked up again before the engine tells of a change.
        """
        ...

    async def watch_egress(self) -> None:
        """Kill restricted containers that somebody else starts, until the engine ends the stream of its events.

        Raises nothing.
        """
        ...

    def close(self) -> None:
        """Let go of all streams and of the engine; containers are left as they are."""
        ...
