"""The images of an engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image on this engine."""

    name: str
    digest: str
    """The image id (`sha256:...`); goes into receipts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that it sets; `Images.all` leaves this empty."""
    names: tuple[str, ...] = ()
    """All its names on this engine, `repository:tag` and `repository@digest`; `Images.all` leaves this empty."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image with its size and use."""

    names: tuple[str, ...]
    """All its names as `repository:tag`; empty if it has only an id."""
    digest: str
    size_bytes: int
    """Including layers shared with other images."""
    created_at: float
    """Unix seconds."""
    pulled: bool
    """A registry knows it, so it can probably be pulled again."""
    used: bool
    """A container or another image depends on it."""


@dataclass(frozen=True, slots=True)
class Build:
    """How an image is built from a context."""

    dockerfile: str
    """Path in the context."""
    memory_mb: int
    """Limit on each of its steps."""
    timeout_s: float
    """Limit on the whole build, pulls of its base images included."""
    labels: Mapping[str, str]


class Images(Protocol):
    """Finds, makes and removes the engine's images. Methods raise EngineUnavailable unless they say otherwise."""

    @property
    def pulling(self) -> int:
        """Number of images that are being pulled."""
        ...

    async def resolve(self, candidates: Sequence[str]) -> ImageInfo:
        """Return the first of `candidates` that is on the engine, else the first that can be pulled.

        Raises:
            ImageUnavailable: none of them; its `absent` is true if a registry said that it has none of them.

        """
        ...

    async def find(self, name: str) -> ImageInfo | None:
        """Return the image if it is on the engine; never pull."""
        ...

    async def build(self, name: str, context: bytes, build: Build) -> ImageInfo:
        """Build the image `name` from a context, a gzipped tar archive.

        Raises:
            ImageUnavailable: the build failed or took too long; the detail has the end of its log.

        """
        ...

    async def all(self) -> Sequence[ImageInfo]:
        """All images on the engine, one entry per name."""
        ...

    async def stored(self) -> Sequence[StoredImage]:
        """All images on the engine that have a name."""
        ...

    async def commit(self, container_id: str, name: str, labels: Mapping[str, str]) -> ImageInfo:
        """Create the image `name` from the container's files; add `labels` to the labels that it inherits.

        Raises:
            SandboxLost: there is no such container. SandboxDiskFull: the engine's disk is full.

        """
        ...

    async def remove(self, name: str) -> bool:
        """Remove the name, and the image with its last name; no error if it is already gone.

        Returns False if it is still there: a container needs it, or the engine failed. Raises nothing.
        """
        ...

    def take_uses(self) -> dict[str, float]:
        """Image name -> time (Unix seconds) of its last resolve or start, for images used since the last call."""
        ...

    async def watch(self) -> None:
        """Follow the engine's image events until it ends the stream or does not answer; raises nothing.

        While this runs, a found image is not looked up again until the engine reports a change.
        """
        ...
