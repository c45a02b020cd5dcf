"""Requests that a protocol recognizes by their host name instead of their path. Not a plugin, hence the underscore."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from sandbox_server.errors import ServiceError

TARGET = "sandbox_server.box_port"
"""Key in the ASGI scope of the parsed host name, for a request to a port of a box."""
RAW = "sandbox_server.raw"
"""Key in the ASGI scope of the client's connection (`RawConnection`), for a request that asks for a websocket."""
TRAFFIC_TOKEN = "e2b-traffic-access-token"
"""Header that a box's ports require, if the box's owner chose so."""
Refuse = Callable[[Request, ServiceError], Awaitable[Response]]
"""Formats the server's response to an error."""

_OF_ONE_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect")
)
_ALWAYS = frozenset((b"host", b"content-length", TRAFFIC_TOKEN.encode()))  # even if a Connection header names them


class RawConnection(Protocol):
    """The connection of a request that asks for a websocket."""

    async def switch(self, head: bytes) -> None:
        """Answer with this head (101); from now on the connection carries no HTTP."""
        ...

    async def read(self) -> bytes:
        """The next bytes; empty: closed."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; they are lost once the connection is closed."""
        ...

    def speak(self, app: ASGIApp) -> None:
        """Answer by websocket messages instead: `app` gets a `websocket` scope. Returns at once."""
        ...


def switching(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of a response that switches to a websocket, with the other side's headers."""
    lines = (b"%b: %b\r\n" % pair for pair in passed_on([(name.lower(), value) for name, value in headers]))
    return (
        b"HTTP/1.1 101 Switching Protocols\r\n" + b"".join(lines) + b"upgrade: websocket\r\nconnection: Upgrade\r\n\r\n"
    )


@dataclass(frozen=True, slots=True)
class ByHost:
    """A protocol's two ASGI middlewares; a module of this folder may define them as `BY_HOST`."""

    mark: Any
    """`mark(app, domain=...)`: parses the host name first of all; writes `TARGET` and the trait into the scope."""
    answer: Any
    """`answer(app, tunnels=..., idle_s=..., refuse=...)`: answers the requests that have a `TARGET`."""


def passed_on(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The end-to-end headers, without hop-by-hop headers; names in lower case."""
    named = b",".join(value for name, value in headers if name == b"connection").lower().split(b",")
    dropped = _OF_ONE_HOP | ({name.strip() for name in named} - _ALWAYS)
    return [(name, value) for name, value in headers if name not in dropped]
