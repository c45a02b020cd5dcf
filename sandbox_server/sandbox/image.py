"""The engine's description of its images."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image on this engine."""

    name: str
    digest: str
    """The image id (`sha256:...`); goes into receipts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that it sets; `Runtime.images` leaves this empty."""
    names: tuple[str, ...] = ()
    """All its names on this engine, `repository:tag` and `repository@digest`; `Runtime.images` leaves this empty."""


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
