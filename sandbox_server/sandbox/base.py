"""What a sandbox is to the rest of the service: a shell, one-off commands and files; and who makes them.

Nothing here knows Docker. A backend implements `Sandbox`, `Shell` and `Runtime`; tests/conformance holds
the behaviours that each must show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from sandbox_server.sandbox.egress import Egress
from sandbox_server.sandbox.filesystem import Tree
from sandbox_server.sandbox.image import ImageInfo as ImageInfo
from sandbox_server.sandbox.image import StoredImage as StoredImage
from sandbox_server.sandbox.output import ExecResult as ExecResult
from sandbox_server.sandbox.output import Output as Output
from sandbox_server.sandbox.outside import Outside
from sandbox_server.sandbox.process import Process as Process  # part of what a sandbox is; its own file for its size
from sandbox_server.sandbox.process import ProcessEnd as ProcessEnd
from sandbox_server.sandbox.process import Size as Size
from sandbox_server.sandbox.process import Stream as Stream

DEFAULT_ACTIVATION = "[[ -f /opt/miniconda3/bin/activate ]] && . /opt/miniconda3/bin/activate testbed 2> /dev/null"
"""What an empty `activate` stands for: the conda env `testbed`, where the image has it."""


class Role(StrEnum):
    """Why a container exists; label `sandbox.role`."""

    SESSION = "session"
    GRADE = "grade"
    PREPARE = "prepare"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one container may use."""

    memory_mb: int = 4096
    cpus: float = 2.0
    pids: int = 512
    open_files: int = 4096
    disk_mb: int = 10240
    """Bound on one file and on the writable layer."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """All that fixes a container at its creation."""

    image: str
    role: Role
    sid: str
    """The session it is for (also for grade and prepare containers: whose it is, or "" for none)."""
    deadline: datetime
    """The moment by which it goes even if nothing else is known of it; label `sandbox.deadline`."""
    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    activate: str = ""
    """Shell text that the persistent shell runs once at its start (conda activation and the like)."""
    network: str = "none"
    egress: Egress | None = None
    """What of the network it may reach; a session, at most what the server's sessions may."""
    limits: Limits = field(default_factory=Limits)
    with_shell: bool = True
    """False: no persistent shell; the container only waits for `exec`."""
    cpu_shares: int = 0
    """Weight among containers that want the CPU at the same time; 0: the engine's default, 1024."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Folder of the engine's host -> where it is in the container; only what the engine itself has named."""


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """One container of ours as the engine lists it."""

    container_id: str
    role: Role
    sid: str
    node: str
    deadline: datetime
    running: bool
    image: str
    held: bool
    """This process makes or uses it: it is not an orphan."""
    paused: bool = False


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


class Sandbox(Tree, Protocol):
    """One container: a persistent shell, one-off commands, files (`Tree`: as users see them)."""

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
    """Makes, finds and removes containers on one engine."""

    @property
    def outside(self) -> Outside:
        """What the engine itself says of containers, and their files without their own programs."""
        ...

    async def create(self, spec: ContainerSpec) -> Sandbox:
        """Create and start a container; its shell is ready when this returns.

        Raises:
            ImageUnavailable, EngineUnavailable, CapacityError. Nothing is left behind on any of them,
            nor when the caller is cancelled.

        """
        ...

    async def attach(self, container_id: str) -> Sandbox:
        """The sandbox of a running container, its shell reattached (after a restart of the server).

        Raises:
            SandboxLost: it is gone or not running.

        """
        ...

    async def list(self) -> list[ContainerInfo]:
        """All containers with this node's label, running or not."""
        ...

    async def remove(self, container_id: str) -> None:
        """Kill and remove; no error when it is already gone."""
        ...

    async def connect(self, container_id: str, *, on: bool) -> bool:
        """Give a running container its network back, or cut it off; False: it was made without one for good."""
        ...

    async def restrict(self, container_id: str, egress: Egress | None) -> None:
        """What a running session's container may reach, from now on; None: what every session may.

        Raises:
            EgressUnavailable: the rules are not in place, what was before still holds. SandboxLost, EngineUnavailable.

        """
        ...

    async def pause(self, container_id: str) -> None:
        """Freeze all of its processes; memory, files and streams are kept, time limits of commands stand still.

        Until `unpause` its sandbox raises SandboxPaused. No error when it is paused already. Raises SandboxLost.
        """
        ...

    async def unpause(self, container_id: str) -> None:
        """Let its processes go on where they stood; no error when they run. Raises SandboxLost."""
        ...

    async def disk_usage(self, container_id: str = "") -> dict[str, int]:
        """Bytes in the writable layer of each container of this node, or of one; slow, it looks at every file."""
        ...

    async def resolve_image(self, candidates: Sequence[str]) -> ImageInfo:
        """The first of `candidates` that is on the engine, else the first that can be pulled.

        Raises:
            ImageUnavailable: none.

        """
        ...

    async def images(self) -> Sequence[ImageInfo]:
        """All images on the engine, one for each of their names."""
        ...

    async def find_image(self, name: str) -> ImageInfo | None:
        """The image, if it is on the engine; never pulls."""
        ...

    async def commit(self, container_id: str, name: str, labels: Mapping[str, str]) -> ImageInfo:
        """Freeze the container's files into the image `name`."""
        ...

    async def stored_images(self) -> Sequence[StoredImage]:
        """Every image on the engine that has a name."""
        ...

    async def remove_image(self, name: str) -> bool:
        """Take the name, and with its last one the image, away; False: a container needs it."""
        ...

    def take_image_uses(self) -> dict[str, float]:
        """Names of the images that were resolved or started from since the last call, and when (Unix seconds)."""
        ...
