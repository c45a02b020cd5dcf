"""Connections to ports of boxes, made by a process inside the box, so the box needs no network."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

from sandbox_server.errors import CapacityError, ServiceError
from sandbox_server.sandbox.base import Process, Sandbox, Stream

_OPEN = b"+"
# stdin ends when we hang up: then the reader is killed too. A port that stops reading may still send, so a failed
# writer does not end the reader.
_SCRIPT = f"""
{{ exec 3<>"/dev/tcp/127.0.0.1/$1" || exec 3<>"/dev/tcp/::1/$1"; }} 2>/dev/null || exit 1
exec 4<&0
printf {_OPEN.decode()}
cat <&3 3<&- 4<&- & reader=$!
{{ cat <&4 >&3 && kill $reader; }} >/dev/null 2>&1 &
exec 3<&- 4<&-
wait $reader
"""


class PortClosed(ServiceError):
    """The port of the box does not accept connections."""

    code = "port_closed"
    http_status = 502


class Tunnels:
    """Opens tunnels, at most `most` at a time per box: each takes four of its processes."""

    def __init__(self, *, most: int, open_s: float) -> None:
        """`open_s`: timeout of opening one."""
        self._most = most
        self._open_s = open_s
        self._open: Counter[str] = Counter()

    async def open(self, sid: str, sandbox: Sandbox, port: int) -> "Tunnel":
        """A connection to `port` of the box's loopback, IPv4 before IPv6.

        Raises:
            PortClosed. CapacityError: the box has `most` tunnels already. InfrastructureError.

        """
        if self._open[sid] >= self._most:
            raise CapacityError(
                f"{self._most} requests to ports of sandbox {sid} are under way (SANDBOX_BOX_PORT_CONNECTIONS);"
                " wait for one to end",
                reason="ports",
            )
        tunnel = Tunnel(self._open, sid)
        try:
            async with asyncio.timeout(self._open_s):
                await tunnel.open(sandbox, port)
        except TimeoutError:
            await tunnel.close()
            raise PortClosed(f"port {port} took no connection within {self._open_s:g} s") from None
        except BaseException:
            await tunnel.close()
            raise
        return tunnel


class Tunnel:
    """One TCP connection; the caller closes it."""

    def __init__(self, counts: Counter[str], sid: str) -> None:
        self._counts = counts
        self._sid = sid
        self._counts[sid] += 1
        self._process: Process | None = None
        self._pieces: AsyncIterator[tuple[Stream, bytes]] | None = None
        self._first = b""

    async def open(self, sandbox: Sandbox, port: int) -> None:
        """Connect. Raises PortClosed, InfrastructureError."""
        argv = ["bash", "--noprofile", "--norc", "-p", "-c", _SCRIPT, "tunnel", str(port)]
        self._process = await sandbox.start(argv, stdin=True)
        self._pieces = self._process.output()
        first = await self.read()
        if not first.startswith(_OPEN):
            raise PortClosed("The sandbox is running but port is not open")
        self._first = first[len(_OPEN) :]

    async def read(self) -> bytes:
        """The next bytes, at most 32 KiB; empty: the other side has closed. Raises InfrastructureError."""
        if self._first:
            first, self._first = self._first, b""
            return first
        assert self._pieces is not None
        async for stream, data in self._pieces:
            if stream is Stream.STDOUT:
                return data
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes; they are lost if the other side no longer reads. Raises InfrastructureError."""
        assert self._process is not None
        await self._process.write(data)

    async def close(self) -> None:
        """Close the connection; idempotent."""
        if self._sid:
            self._counts[self._sid] -= 1
            if not self._counts[self._sid]:
                del self._counts[self._sid]
            self._sid = ""
            if self._process is not None:
                with suppress(ServiceError):
                    await self._process.close_stdin()
                self._process.detach()
