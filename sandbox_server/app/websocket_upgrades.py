"""Requests that ask for a websocket, for uvicorn's `ws`: the app answers them as HTTP and may take the connection over.

Such a request reaches the app as an `http` scope, with the connection under RAW. A websocket to a port of a box is
passed through byte for byte: the part that forwards it writes the other side's 101 to the connection and then copies
bytes. A websocket of our own protocols is left to uvicorn, which gets the connection. Any other answer is sent in the
usual way and closes the connection. Otherwise a later request of a proxy on it could pass for bytes of a websocket.
"""

import asyncio
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Scope
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from sandbox_server.protocols._by_host import RAW
from sandbox_server.telemetry import logger

log = logger(__name__)

_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
_HELD = 1 << 16
"""Maximum bytes read ahead of the part that copies them."""
_PIECE = 1 << 12
"""Bytes of a websocket that are read at a time. An empty ping has six, and costs some 0.1 ms."""


class Connection:
    """The client's connection; implements `_by_host.RawConnection`."""

    def __init__(self, transport: asyncio.Transport, speak: Callable[[ASGIApp, bytes], None]) -> None:
        """`speak(app, data)`: hand the connection over to uvicorn's websocket; `data` was read and not used."""
        self._transport = transport
        self._speak = speak
        self._held = bytearray()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.over = asyncio.Event()
        self.switched = False

    def feed(self, data: bytes) -> None:
        """Bytes from the client."""
        self._held += data
        if len(self._held) > _HELD:
            self._transport.pause_reading()
        self._news.set()

    def end(self) -> None:
        """The client has closed the connection."""
        self.over.set()
        self._news.set()
        self._room.set()

    def may_write(self, *, now: bool) -> None:
        """Note whether the client takes more bytes."""
        (self._room.set if now else self._room.clear)()

    async def read(self) -> bytes:
        """The next bytes; empty: closed."""
        while not self._held and not self.over.is_set():
            self._news.clear()
            await self._news.wait()
        data = bytes(self._held)
        self._held.clear()
        if not self.over.is_set():
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; they are lost once the connection is closed."""
        self._transport.write(data)
        await self._room.wait()

    def speak(self, app: ASGIApp) -> None:
        """See `_by_host.RawConnection`."""
        self.switched = True
        self._transport.resume_reading()
        self._speak(app, bytes(self._held))
        self._held.clear()

    async def switch(self, head: bytes) -> None:
        """Answer with this head (101); from now on the connection carries no HTTP."""
        self.switched = True
        await self.write(head)


class PieceByPiece:
    """The transport of a websocket, from which its protocol gets a small piece in each round of the event loop.

    One read may bring 256 KB, that is 40,000 pings, which would hold the loop for seconds.
    """

    def __init__(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._held = bytearray()
        self._paused = False
        """By the protocol."""
        self._waits = False
        """Whether the next piece is scheduled."""
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Bytes from the client."""
        self._held += data
        if len(self._held) > _PIECE:
            self._transport.pause_reading()
        if not self._waits:
            self._next()

    def end(self) -> None:
        """The client sends nothing more: close the connection once the protocol has all bytes."""
        self._ended = True
        if not self._waits:
            self._next()

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._paused = False
        if not self._waits:
            self._wait()

    def _wait(self) -> None:
        self._waits = True
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._waits = False
        if self._paused or self._transport.is_closing():
            return
        if self._held:
            piece = bytes(self._held[:_PIECE])
            del self._held[:_PIECE]
            self._protocol.data_received(piece)
        if self._held:
            if not self._waits and not self._paused:
                self._wait()
        elif self._ended:
            self._protocol.eof_received()
            self._transport.close()
        elif not self._paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Upgraded(asyncio.Protocol):
    """One connection whose request asks for a websocket; made by uvicorn, which hands it the request's head."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._config = config
        self._app: ASGIApp = config.loaded_app
        self._state = server_state
        self._app_state = app_state
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._asked = False
        self._head = b""
        self._speaking: WebSocketsSansIOProtocol | None = None
        """uvicorn's websocket, once the connection was handed over to it."""
        self._pieces: PieceByPiece | None = None
        """The transport that `_speaking` reads from."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._connection = Connection(self._transport, self._speak)
        self._state.connections.add(self)  # type: ignore[arg-type]  # uvicorn only calls its `shutdown`

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`; the first piece is the whole head."""
        assert self._transport is not None and self._connection is not None
        if self._pieces is not None:
            self._pieces.feed(data)
            return
        if self._head:
            self._connection.feed(data)
            return
        self._head = data
        wire = h11.Connection(h11.SERVER)
        try:
            wire.receive_data(data)
            request = wire.next_event()
        except h11.RemoteProtocolError:
            request = h11.NEED_DATA
        if not isinstance(request, h11.Request):
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self._transport.close()
            return
        task = asyncio.get_running_loop().create_task(self._answer(self._scope(request)))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def _scope(self, request: h11.Request) -> Scope:
        assert self._transport is not None
        path, _, query = request.target.partition(b"?")
        peer, own = self._transport.get_extra_info("peername"), self._transport.get_extra_info("sockname")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method.decode("ascii"),
            "scheme": "http",
            "server": tuple(own[:2]) if own else None,
            "client": tuple(peer[:2]) if peer else None,
            "root_path": "",
            "path": urllib.parse.unquote(path.decode("ascii", "replace")),
            "raw_path": path,
            "query_string": query,
            "headers": list(request.headers),
            "state": self._app_state.copy(),
            RAW: self._connection,
        }

    async def _answer(self, scope: Scope) -> None:
        assert self._transport is not None
        try:
            await self._app(scope, self._receive, self._send)
        except Exception:
            log.exception("a request for a websocket failed", path=scope["path"])
        finally:
            if self._speaking is None:
                self._transport.close()

    def _speak(self, app: ASGIApp, data: bytes) -> None:
        assert self._transport is not None
        self._speaking = WebSocketsSansIOProtocol(self._config, self._state, self._app_state)
        self._speaking.app = app
        self._state.connections.discard(self)
        self._pieces = PieceByPiece(self._transport, self._speaking)
        self._speaking.connection_made(cast(asyncio.Transport, self._pieces))
        self._speaking.data_received(self._head)
        self._pieces.feed(data)

    async def _receive(self) -> Message:
        assert self._connection is not None
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._connection.over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        assert self._connection is not None
        if self._connection.switched:
            return
        if message["type"] == "http.response.start":
            lines = [b"HTTP/1.1 %d %b\r\n" % (message["status"], _PHRASES.get(message["status"], b""))]
            lines += [b"%b: %b\r\n" % (name, value) for name, value in message["headers"] if name != b"connection"]
            await self._connection.write(b"".join([*lines, b"connection: close\r\n\r\n"]))
        else:
            await self._connection.write(message.get("body", b""))

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._state.connections.discard(self)
        if self._speaking is not None:
            self._speaking.connection_lost(exc)
        if self._connection is not None:
            self._connection.end()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol`: the connection closes; a websocket's connection closes once all was read."""
        if self._pieces is not None:
            self._pieces.end()
        return self._pieces is not None

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._speaking is not None:
            self._speaking.pause_writing()
        elif self._connection is not None:
            self._connection.may_write(now=False)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        if self._speaking is not None:
            self._speaking.resume_writing()
        elif self._connection is not None:
            self._connection.may_write(now=True)

    def shutdown(self) -> None:
        """The server stops: a websocket may be open for hours, so it is closed now."""
        if self._transport is not None:
            self._transport.close()
