"""Connections to the ports of boxes, as programs in the box make them: nothing of its network is needed for that."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

from sandbox_server.errors import CapacityError, ServiceError
from sandbox_server.sandbox.base import Process, Sandbox, Stream

_OPEN = b"+"
# stdin's end is ours: then the reader goes too. A port that reads no more may still have much to say, so only an
# orderly end of the writer ends the reader.
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
    """Nothing in the box listens there."""

    code = "port_closed"
    http_status = 502


class Tunnels:
    """Opens them; a box has at most `most` at a time, for each costs it four processes."""

    def __init__(self, *, most: int, open_s: float) -> None:
        """`open_s`: how long opening one may take."""
        self._most = most
        self._open_s = open_s
        self._open: Counter[str] = Counter()

    async def open(self, sid: str, sandbox: Sandbox, port: int) -> "Tunnel":
        """A connection to `port` of the box's loopback, IPv4 before IPv6.

        Raises:
            PortClosed. CapacityError: the box has as many as it may. InfrastructureError.

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
    """One TCP connection. To be closed."""

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
        """The next bytes, at most 32 KiB; none: the other side has hung up. Raises InfrastructureError."""
        if self._first:
            first, self._first = self._first, b""
            return first
        assert self._pieces is not None
        async for stream, data in self._pieces:
            if stream is Stream.STDOUT:
                return data
        return b""

    async def write(self, data: bytes) -> None:
        """Send; what the other side does not want any more is lost. Raises InfrastructureError."""
        assert self._process is not None
        await self._process.write(data)

    async def close(self) -> None:
        """Hang up; again: nothing."""
        if self._sid:
            self._counts[self._sid] -= 1
            if not self._counts[self._sid]:
                del self._counts[self._sid]
            self._sid = ""
            if self._process is not None:
                with suppress(ServiceError):
                    await self._process.close_stdin()
                self._process.detach()
