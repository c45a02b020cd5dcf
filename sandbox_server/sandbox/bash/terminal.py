"""The attached stream of a container's terminal as an asyncio protocol."""

import asyncio
from typing import Protocol, cast

from sandbox_server.sandbox.bash.marks import Mark, Scanner


class Listener(Protocol):
    """Receives what the terminal shows."""

    def received(self, data: bytes, mark: Mark | None) -> None:
        """One piece of output, or one mark."""
        ...

    def disconnected(self) -> None:
        """The stream ended."""
        ...


class Terminal(asyncio.Protocol):
    """Splits what arrives into output and marks for its listener; writes are buffered, never blocking."""

    def __init__(self, token: str, listener: Listener) -> None:
        self._scanner = Scanner(token)
        self._listener: Listener | None = listener
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but ancestry

    def data_received(self, data: bytes) -> None:
        """Bytes of the terminal."""
        listener = self._listener
        if listener is not None:
            for piece, mark in self._scanner.feed(data):
                listener.received(piece, mark)

    def connection_lost(self, exc: Exception | None) -> None:
        """The container stopped, the daemon went away, or `close`."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.disconnected()

    @property
    def is_open(self) -> bool:
        """Bytes can be written to it."""
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Queue `data` for the terminal; what comes after its end is lost, and its listener has heard of that."""
        if self._transport is not None and self.is_open:
            self._transport.write(data)

    def close(self) -> None:
        """Leave the terminal; its listener hears nothing more."""
        self._listener = None
        if self._transport is not None:
            self._transport.close()
