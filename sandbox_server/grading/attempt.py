"""One try of a grading on a fresh container: how it is run, how far it came, what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_server.grading.altering import Room
from sandbox_server.grading.base import TestRun
from sandbox_server.grading.containers import Box


@dataclass(slots=True)
class Attempt:
    """What came of one fresh container."""

    run: TestRun
    tier: str
    image_digest: str
    timings_s: dict[str, float]
    number: int = 1
    blamed: bool = False
    """It has no results because of the patch, as a control has shown."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A container with the patch and the tests' files in it."""

    box: Box
    tier: str = ""
    """The command that took the patch."""
    failure: TestRun | None = None
    """The verdict where it ends here."""
    timings_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Altered:
    """How a run differs from the grading's own."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """Path -> text, in place of the tests' own."""
    focus: str = ""
    """Options for pytest."""
    room: Room | None = None
