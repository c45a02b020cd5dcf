"""One attempt at a grading on a fresh container: its variation, its intermediate state, its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_server.grading.altering import Room
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.containers import Box


@dataclass(slots=True)
class Attempt:
    """The result of one fresh container."""

    run: TestRun
    tier: str
    image_digest: str
    timings_s: dict[str, float]
    number: int = 1
    blamed: bool = False
    """A control has shown that the patch is the reason for missing results."""


@dataclass(frozen=True, slots=True)
class Patched:
    """A container in which the patch is applied and the tests' files are placed."""

    box: Box
    tier: str = ""
    """The command that applied the patch."""
    failure: TestRun | None = None
    """The result if the attempt ends here."""
    timings_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Altered:
    """How a run differs from a plain grading."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """Path -> content that replaces the tests' own files."""
    focus: str = ""
    """pytest options."""
    room: Room | None = None
