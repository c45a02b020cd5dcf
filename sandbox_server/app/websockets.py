"""Websocket handshakes, for uvicorn's `ws`: OpenEnv's are the server's own, all others are requests like any other."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from sandbox_server.app.upgraded import Upgraded

_OWN = re.compile(rb"GET (/[A-Za-z0-9_.-]+)?/openenv/([^ ?]*/)?ws[ ?]")


class Websockets(asyncio.Protocol):
    """One connection, handed to the protocol that its first line asks for; made by uvicorn."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._made: Callable[[Any], Any] = lambda kind: kind(config, server_state, app_state)
        self._transport: asyncio.BaseTransport | None = None
        self._inner: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`; the first piece is the whole head."""
        if self._inner is None:
            self._inner = self._made(WebSocketsSansIOProtocol if _OWN.match(data) else Upgraded)
            self._inner.connection_made(self._transport)
        self._inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._inner.resume_writing()
