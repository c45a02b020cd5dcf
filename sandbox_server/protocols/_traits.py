"""What is true of a protocol's paths before any route sees them. No plugin: its name begins with an underscore."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers

from sandbox_server.errors import ServiceError

TRAIT = "sandbox_server.trait"
"""Where the trait of a request's path stands in its ASGI scope."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that says why there is none."""

    status: int
    body: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trait:
    """Some paths; a module in this folder that has such gives a sequence of them as `TRAITS`."""

    paths: re.Pattern[str]
    """Matched from the path's start."""
    opens: bool = False
    """They ask for no API key: their routes see themselves who may pass."""
    streams: bool = False
    """Bodies and answers may be of any length and last for hours: no bound holds for them, none is kept whole."""
    refuse: Callable[[ServiceError, Headers], Refusal] | None = None
    """How an error reads there, by the request's headers; None: as everywhere."""
