"""The persistent shell of a sandbox, and what a command in it came to."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sandbox_server.sandbox.output import Output


class ShellOutcome(StrEnum):
    """How a command in the persistent shell ended, or that it has not."""

    FINISHED = "finished"
    RUNNING = "running"
    """The soft timeout passed and the command still runs; poll it, send it text or interrupt it."""
    INTERRUPTED = "interrupted"
    """The hard timeout passed and SIGINT ended the command; none of its processes is left."""
    KILLED = "killed"
    """The hard timeout passed, SIGINT had no effect and the command was killed; none of its processes is left."""
    SHELL_ENDED = "shell_ended"
    """The command ended the shell itself; a new shell starts in the same cwd with the same exported environment."""
    RESTARTED = "restarted"
    """All processes of the sandbox were killed (kill -9 -1, out of memory); files and cwd are kept."""


@dataclass(frozen=True, slots=True)
class ShellResult:
    """The result of one command in the persistent shell, and the shell's state after it."""

    output: Output
    """The terminal's output with `\\r\\n` line ends, without echo, prompt and markers."""
    outcome: ShellOutcome
    exit_code: int
    """-1 while RUNNING; 130 after INTERRUPTED; 137 after KILLED."""
    cwd: str
    user: str
    python: str
    """Path of `python` as the shell would resolve it, "" if there is none."""
    duration_s: float
    shell_replaced: bool = False
    """The shell is a new one: functions, aliases and unexported variables are lost."""
    restarted: bool = False
    """All processes were killed, before or by the command: exported variables are lost too; files are kept."""
    oom_killed: bool = False


class Shell(Protocol):
    """The persistent bash of a sandbox, on a terminal. One command at a time; the caller holds the session's lock."""

    @property
    def cwd(self) -> str:
        """The shell's working directory; "" before the first command after `attach`."""
        ...

    @property
    def running(self) -> bool:
        """A soft timeout left a command running, and its end has not been returned yet."""
        ...

    async def run(
        self, command: str, *, timeout_s: float, soft_timeout_s: float | None = None, since_mark: bool = True
    ) -> ShellResult:
        """Run `command` (any bash text without NUL) in the shell.

        Past `timeout_s` seconds the command gets SIGINT and is then killed, with every process started since the action
        began; processes of earlier actions live on. `since_mark=False`: this command belongs to the same action as the
        previous one, so processes that the previous command started are killed too.
        Past `soft_timeout_s` seconds the command is left running and the outcome is RUNNING.

        Raises:
            SandboxLost: the container is gone. EngineUnavailable: the daemon does not answer.

        """
        ...

    async def poll(self, *, wait_s: float) -> ShellResult:
        """Return more output of a RUNNING command; wait at most `wait_s` seconds for its end."""
        ...

    async def send(self, text: str, *, wait_s: float) -> ShellResult:
        """Write `text` and a newline to the RUNNING command's terminal, then continue as `poll`.

        If the command has ended meanwhile, `text` runs as the next command; its output follows what was left to return.
        """
        ...

    async def answers(self, *, within_s: float) -> bool:
        """Whether an idle shell shows its prompt after an empty line, which is half the work of a command.

        False also if the container had ended; it is started again. Raises as `run`.
        """
        ...

    async def settle(self, *, wait_s: float) -> ShellResult | None:
        """After `attach`, wait for a command that a previous server left running, then stop it; None if idle."""
        ...

    async def interrupt(self, *, wait_s: float) -> ShellResult:
        """Send SIGINT to the RUNNING command, then continue as `poll`; kill it if it ignores SIGINT."""
        ...
