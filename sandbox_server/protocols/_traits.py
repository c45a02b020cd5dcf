"""Properties of a protocol's paths that apply before routing. Not a plugin, hence the underscore."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers

from sandbox_server.errors import ServiceError

TRAIT = "sandbox_server.trait"
"""Key in the ASGI scope of the trait of the request's path."""
PREFIX = "sandbox_server.prefix"
"""Key in the ASGI scope of the prefix that was removed from the request's path; absent for none."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error response."""

    status: int
    body: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trait:
    """Properties of a set of paths; a protocol module may define a sequence of them as `TRAITS`."""

    paths: re.Pattern[str]
    """Matched from the path's start."""
    opens: bool = False
    """The paths need no API key: their routes check access themselves."""
    streams: bool = False
    """Bodies and responses may have any length and last for hours: no limits apply and none is buffered."""
    refuse: Callable[[ServiceError, Headers], Refusal] | None = None
    """Formats an error for these paths, given the request's headers; None: the default format."""
    sockets: bool = False
    """The paths accept websockets; a websocket's handshake for any other path is answered as an HTTP request."""
    token: bool = False
    """The token of the session in the path is accepted in place of an API key."""
