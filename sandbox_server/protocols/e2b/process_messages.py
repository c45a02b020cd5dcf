"""The messages that clients send to process.Process, by their names in its protobuf."""

from typing import Annotated

from pydantic import Field

from sandbox_server.protocols.e2b.connect import Message


class ProcessConfig(Message):
    """The program, its arguments, environment and working directory."""

    cmd: str
    args: list[str] = Field(default_factory=list)
    envs: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None


Characters = Annotated[int, Field(ge=0, lt=1 << 16)]


class PtySize(Message):
    """Terminal size in characters."""

    cols: Characters = 80
    rows: Characters = 24


class Pty(Message):
    """A terminal."""

    size: PtySize = PtySize()


class Start(Message):
    """A command."""

    process: ProcessConfig
    pty: Pty | None = None
    tag: str | None = None
    stdin: bool = True
    """True is envd's default; SDKs that want no stdin send false."""


class Selector(Message):
    """A process, by pid or by the client's tag for it."""

    pid: int | None = None
    tag: str | None = None


class Input(Message):
    """Bytes in base64."""

    stdin: str | None = None
    pty: str | None = None


class Selected(Message):
    """Connect, CloseStdin."""

    process: Selector = Selector()


class SendInput(Selected):
    """One piece of input."""

    input: Input = Input()


class SendSignal(Selected):
    """A signal by name or number."""

    signal: str | int = ""


class Update(Selected):
    """The terminal's new size."""

    pty: Pty | None = None


class Data(Message):
    """The data of a StreamInput message."""

    input: Input = Input()


class StreamInput(Message):
    """The first message names the command, the others carry its input."""

    start: Selected | None = None
    data: Data | None = None


class Nothing(Message):
    """List."""
