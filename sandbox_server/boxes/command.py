"""A command of a box, as a client asked for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Command:
    """What runs, in the client's words."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    tag: str | None = None
    """The client's own name for it."""
    pty: bool = False
