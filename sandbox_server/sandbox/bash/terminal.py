"""The attached stream of a container's terminal as an asyncio protocol."""

import asyncio
from typing import Protocol, cast

from sandbox_server.sandbox.bash.marks import Mark, Scanner


class Listener(Protocol):
    """Receives the terminal's output."""

    def received(self, data: bytes, mark: Mark | None) -> None:
        """Handle a piece of output (`mark` None) or a mark."""
        ...

    def disconnected(self) -> None:
        """The stream ended."""
        ...


class Terminal(asyncio.Protocol):
    """Splits incoming bytes into output and marks for its listener; writes are buffered and never block."""

    def __init__(self, token: str, listener: Listener) -> None:
        self._scanner = Scanner(token)
        self._listener: Listener | None = listener
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from it

    def data_received(self, data: bytes) -> None:
        """Handle bytes from the terminal."""
        listener = self._listener
        if listener is not None:
            for piece, mark in self._scanner.feed(data):
                listener.received(piece, mark)

    def connection_lost(self, exc: Exception | None) -> None:
        """The container stopped, the daemon went away, or `close` was called."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.disconnected()

    @property
    def is_open(self) -> bool:
        """The terminal can be written to."""
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Queue `data` for the terminal; after its end, which the listener has been told of, data is dropped."""
        if self._transport is not None and self.is_open:
            self._transport.write(data)

    def close(self) -> None:
        """Close the stream; the listener is not called any more."""
        self._listener = None
        if self._transport is not None:
            self._transport.close()
