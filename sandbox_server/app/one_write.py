"""Sends the head and the body of a response in one write.

uvicorn writes them one after the other, so a small answer costs two system calls and wakes its reader twice.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_JOINED = 1 << 16
"""Longest body that is copied to follow its head; copying more costs more than a second write."""


class OneWriteProtocol(HttpToolsProtocol):
    """uvicorn's protocol, on a transport that keeps a head back until its body comes or the loop goes on."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Called when the connection is established."""
        super().connection_made(cast(asyncio.Transport, _Transport(transport)))


class _Transport:
    """Wraps a transport: `write` and `close` are its own, all else is passed on."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write `data`; a head alone is written once the loop has run the callbacks that are ready now."""
        if self._head:
            if len(data) <= _JOINED:
                data, self._head = self._head + data, b""
            else:
                self._flush()
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._put(data)

    def close(self) -> None:
        """Close the transport once everything written is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self._put(self._head)
            self._head = b""

    def _put(self, data: bytes) -> None:
        """Write `data`, unless the client is gone.

        uvicorn notes this only for the request that it answers. It still answers the requests that came after it on the
        same connection, for which uvloop would raise RuntimeError.
        """
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
