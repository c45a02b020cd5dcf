"""The streams of a container's shell: the engine's attached stream, or FIFOs if they work."""

import asyncio
from typing import Protocol, cast

from sandbox_server.sandbox.bash.fifos import WORD, Fifos
from sandbox_server.sandbox.bash.marks import Mark, Notice, Scanner


class Listener(Protocol):
    """Receives the terminal's output."""

    def received(self, data: bytes, mark: Mark | None) -> None:
        """Handle a piece of output (`mark` None) or a mark."""
        ...

    def disconnected(self) -> None:
        """The stream ended."""
        ...


class Terminal(asyncio.Protocol):
    """Splits incoming bytes into output and marks for its listener; writes are buffered and never block.

    With FIFOs (`direct`) the shell's bytes go through them. The attached stream then carries only boot.bash's notices,
    because no process of the container can read their token there. Its end is the end of the container.
    """

    def __init__(self, token: str, listener: Listener, fifos: Fifos | None = None) -> None:
        self._scanner = Scanner(token)
        self._listener: Listener | None = listener
        self._transport: asyncio.Transport | None = None
        self._fifos = fifos
        self._direct: Scanner | None = None

    @property
    def direct(self) -> bool:
        """Whether the shell is reached through FIFOs."""
        return self._direct is not None

    def open_fifos(self) -> None:
        """Use the FIFOs if they exist; boot.bash has agreed to them, or has not answered yet."""
        if self._fifos is not None and self._fifos.open(self._shell_said):
            self._direct = Scanner(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the attached stream."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from it

    def data_received(self, data: bytes) -> None:
        """Handle bytes from the attached stream."""
        for piece, mark in self._scanner.feed(data):
            if mark == Notice(("up",)):
                self._without_fifos()
            if self._direct is None:
                self._tell(piece, mark)
            elif isinstance(mark, Notice) and self._fifos is not None:
                self._fifos.drain()  # what the shell wrote before the notice
                if mark.words[0] == "end":
                    self._fifos.discard()
                self._tell(piece, mark)
                if mark.words[0] == "end":
                    self._write_attached(b"\n")  # boot.bash waits for it

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the FIFOs and tell the listener, unless `close` was called: the container or the engine stopped."""
        if self._fifos is not None:
            if self._listener is not None:
                self._fifos.drain()
            self._fifos.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.disconnected()

    @property
    def is_open(self) -> bool:
        """Whether the container's terminal is attached."""
        return self._transport is not None and not self._transport.is_closing()

    def begin(self, token: str) -> None:
        """Send boot.bash its token, and the word that it expects in the FIFO."""
        if self._fifos is not None:
            self._fifos.write(WORD)
        self._write_attached(token.encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Queue `data` for the shell; it is dropped after the terminal's end (`Listener.disconnected`)."""
        if self._direct is not None and self._fifos is not None:
            self._fifos.write(data)
        else:
            self._write_attached(data)

    def close(self) -> None:
        """Close the streams; the listener gets no further calls."""
        self._listener = None
        if self._fifos is not None:
            self._fifos.close()
        if self._transport is not None:
            self._transport.close()

    def _shell_said(self, data: bytes) -> None:
        if self._direct is not None:
            for piece, mark in self._direct.feed(data):
                self._tell(piece, mark)

    def _tell(self, piece: bytes, mark: Mark | None) -> None:
        if self._listener is not None:
            self._listener.received(piece, mark)

    def _without_fifos(self) -> None:
        """Give up the FIFOs, because boot.bash put the shell on the attached terminal."""
        self._direct = None
        if self._fifos is not None:
            self._fifos.take_away()

    def _write_attached(self, data: bytes) -> None:
        if self._transport is not None and self.is_open:
            self._transport.write(data)
