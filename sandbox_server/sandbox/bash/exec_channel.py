"""One lane with its bash (exec_channel.bash), which takes orders and answers on the lane's own streams."""

import asyncio
from importlib import resources

from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.docker.engine import Engine
from sandbox_server.sandbox.docker.exec_stream import Lane

_SCRIPT = resources.files(__package__).joinpath("exec_channel.bash").read_text()
_JUNK = 1 << 16  # before an answer: what the engine says of a process that it could not start


class LaneEnded(Exception):
    """The lane ended before it answered; what it was asked for was not begun."""


class LaneFlooded(Exception):
    """Somebody else writes into the lane; whether what it was asked for was begun is not known."""


class Runner:
    """A bash that waits for orders as one user."""

    def __init__(self, lane: Lane, user: str) -> None:
        self.lane = lane
        self.user = user
        self.idle: asyncio.TimerHandle | None = None
        """Closes it, while it is parked."""
        self._seen, self._errors = bytearray(), bytearray()  # of the answer that is waited for
        self.logins: set[str] = set()
        """Names of those whose definitions it was told."""

    @classmethod
    async def open(cls, engine: Engine, container_id: str, user: str, *, terminal_order: str | None = None) -> "Runner":
        """Start one as `user`, a name or number that the container knows.

        With `terminal_order` on a terminal, where it carries out this one order.

        Raises:
            SandboxLost: the container is not running. SandboxExhausted: it can take no further process.
        """
        argv = ["bash", "--noprofile", "--norc", "-p", "-c", _SCRIPT, "lane", terminal_order or ""]
        tty = terminal_order is not None
        opening = asyncio.ensure_future(Lane.open(engine, container_id, argv, env={}, cwd="/", user=user, tty=tty))
        try:
            return cls(await asyncio.shield(opening), user)
        except asyncio.CancelledError:
            opening.add_done_callback(_close)  # it ends with its input
            raise

    async def ask(self, nonce: str, order: str | None) -> tuple[str, bytes, bytes]:
        """What follows `nonce` on the line that answers `order`, what stdout brought behind it, and stderr.

        One that was cancelled can be asked again, without the order, and loses nothing.

        Raises:
            LaneEnded: it will not answer. LaneFlooded.
        """
        if order is not None:
            self._seen, self._errors = bytearray(), bytearray()
            text = order.encode("utf-8", "surrogateescape")
            await self.lane.write(b"%08d" % len(text) + text)
        mark, seen, errors = nonce.encode() + b" ", self._seen, self._errors
        while len(seen) + len(errors) < _JUNK:
            frame = await self.lane.receive()
            if frame is None:
                raise LaneEnded
            stream, data = frame
            if stream == 2:  # a short command's may come first
                errors += data
                continue
            seen += data
            at = seen.find(mark)
            end = seen.find(b"\n", at)
            if at >= 0 and end >= 0:
                return seen[at + len(mark) : end].decode("ascii", "replace"), bytes(seen[end + 1 :]), bytes(errors)
        raise LaneFlooded

    def close(self) -> None:
        """Drop the lane; its bash ends with its input, once the command that it runs has ended."""
        if self.idle is not None:
            self.idle.cancel()
        self.lane.close()


def _close(opening: asyncio.Future[Lane]) -> None:
    if not opening.cancelled() and not isinstance(opening.exception(), ServiceError):
        opening.result().close()
