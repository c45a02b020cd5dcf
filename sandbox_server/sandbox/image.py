"""What an engine tells of its images."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image as it is on this engine."""

    name: str
    digest: str
    """The image id (`sha256:...`); goes into receipts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment that it sets; not told by `Runtime.images`."""
    names: tuple[str, ...] = ()
    """All names that it has on this engine, `repository:tag` and `repository@digest`; not told by `Runtime.images`."""


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image with what it takes and what stands on it."""

    names: tuple[str, ...]
    """`repository:tag`, each; none: it has only its id."""
    digest: str
    size_bytes: int
    """With the layers that it shares with others."""
    created_at: float
    """Unix seconds."""
    pulled: bool
    """It is known to a registry, so it may be had there again."""
    used: bool
    """A container, or another image, stands on it."""
