"""What stands around a task's own container: images that are built for it, and services beside it."""

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict

_BUILT = "sandbox-prepared:built-"


PART = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
"""Of each part of a task."""


class _Record(BaseModel):
    model_config = PART


class ImageBuild(_Record):
    """An image that the engine builds from a Dockerfile where it is missing."""

    context: str
    """The build context: a gzipped tar archive, in base64."""
    dockerfile: str = "Dockerfile"
    """Path in the context."""
    timeout_s: float = 600.0
    """Limit on the build; SANDBOX_TASK_BUILD_S is another."""

    @property
    def image(self) -> str:
        """Its name: a hash of all inputs."""
        said = f"{self.dockerfile}\0{self.context}"
        return f"{_BUILT}{hashlib.sha256(said.encode()).hexdigest()[:24]}"


Condition = Literal["started", "healthy", "completed"]
"""What a container waits for: that a service was started, that its health check succeeded, that it ended with 0."""


class Health(_Record):
    """How a container says that it can be used: a command in it that ends with 0."""

    test: tuple[str, ...]
    """argv."""
    interval_s: float = 1.0
    """Pause between two runs; none follows the first one that succeeds."""
    timeout_s: float = 30.0
    """A run that takes longer has failed."""
    retries: int = 0
    """So many failures in a row after `start_period_s` are final; 0: none is."""
    start_period_s: float = 0.0
    start_interval_s: float = 1.0
    """Pause after a failure within `start_period_s`."""


class Service(_Record):
    """A container beside the task's own, on a network with it; its name is a host name there."""

    name: str
    images: tuple[str, ...]
    build: ImageBuild | None = None
    """Builds the first of `images`."""
    aliases: tuple[str, ...] = ()
    """Other host names of it."""
    hostname: str = ""
    """Its own idea of its name; "": `name`."""
    command: tuple[str, ...] | None = None
    """None: the image's."""
    entrypoint: tuple[str, ...] | None = None
    """None: the image's."""
    env: dict[str, str] = {}
    workdir: str = ""
    user: str = ""
    files: str = ""
    """Placed in it before its start: a gzipped tar archive, in base64, whose names are relative to /; "" for none."""
    volumes: dict[str, str] = {}
    """Path -> name of a volume that services of the same sandbox share; its content goes with the sandbox."""
    tmpfs: tuple[str, ...] = ()
    health: Health | None = None
    """None: the image's own, if any."""
    after: dict[str, Condition] = {}
    """Service -> what is waited for before this one is started."""
    restart: bool = False
    """The engine starts it again if it ends."""
    memory_mb: int | None = None
    """SANDBOX_SERVICE_MEMORY_MB bounds it."""
    cpus: float | None = None
    """SANDBOX_SERVICE_CPUS bounds it."""


class McpServer(_Record):
    """An MCP server of the task, for an agent that runs in its sandbox."""

    name: str
    transport: Literal["stdio", "sse", "streamable-http"]
    url: str = ""
    """Seen from the sandbox: usually of a service."""
    command: str = ""
    """With stdio: the program, and `args`."""
    args: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    """`${NAME}` in a value is a variable of whoever runs the agent."""


def is_built(image: str) -> bool:
    """Whether an `ImageBuild` gives this name."""
    return image.startswith(_BUILT)
