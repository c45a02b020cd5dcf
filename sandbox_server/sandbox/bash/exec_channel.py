"""One exec channel: a bash in the container (exec_channel.bash) that reads requests and answers on its streams."""

import asyncio
from importlib import resources

from sandbox_server.errors import ServiceError
from sandbox_server.sandbox.engine import Container, ExecStream

_SCRIPT = resources.files(__package__).joinpath("exec_channel.bash").read_text()
_JUNK = 1 << 16  # bytes before an answer, for the engine's message about a process that it could not start


class ChannelEnded(Exception):
    """The channel ended before it answered; the request was not started."""


class ChannelFlooded(Exception):
    """Another process writes to the channel; whether the request was started is unknown."""


class ExecChannel:
    """A bash that runs the requests of one user."""

    def __init__(self, exec_stream: ExecStream, user: str) -> None:
        self.exec_stream = exec_stream
        self.user = user
        self.idle: asyncio.TimerHandle | None = None
        """Timer that closes the channel while it is parked."""
        self._seen, self._errors = bytearray(), bytearray()  # of the current answer
        self.logins: set[str] = set()
        """Names of the logins defined in this channel."""

    @classmethod
    async def open(cls, container: Container, user: str, *, terminal_request: str | None = None) -> "ExecChannel":
        """Open a channel as `user`, a name or number that exists in the container.

        With `terminal_request` it runs on a terminal and executes only this request.

        Raises:
            SandboxLost: the container is not running. SandboxExhausted: it can take no further process.
        """
        argv = ["bash", "--noprofile", "--norc", "-p", "-c", _SCRIPT, "exec-channel", terminal_request or ""]
        tty = terminal_request is not None
        opening = asyncio.ensure_future(container.exec(argv, user=user, tty=tty))
        try:
            return cls(await asyncio.shield(opening), user)
        except asyncio.CancelledError:
            opening.add_done_callback(_close)  # it ends when its input does
            raise

    async def ask(self, nonce: str, request: str | None) -> tuple[str, bytes, bytes]:
        """Send `request`; return the rest of the line after `nonce`, the stdout after that line, and stderr.

        After a cancellation, call it again with `request` None to continue waiting; nothing is lost.

        Raises:
            ChannelEnded: no answer will come. ChannelFlooded.
        """
        if request is not None:
            self._seen, self._errors = bytearray(), bytearray()
            text = request.encode("utf-8", "surrogateescape")
            await self.exec_stream.write(b"%08d" % len(text) + text)
        mark, seen, errors = nonce.encode() + b" ", self._seen, self._errors
        while len(seen) + len(errors) < _JUNK:
            frame = await self.exec_stream.receive()
            if frame is None:
                raise ChannelEnded
            stream, data = frame
            if stream == 2:  # a short command's stderr may arrive first
                errors += data
                continue
            seen += data
            at = seen.find(mark)
            end = seen.find(b"\n", at)
            if at >= 0 and end >= 0:
                return seen[at + len(mark) : end].decode("ascii", "replace"), bytes(seen[end + 1 :]), bytes(errors)
        raise ChannelFlooded

    def close(self) -> None:
        """Close the channel; its bash ends once its current command has ended."""
        if self.idle is not None:
            self.idle.cancel()
        self.exec_stream.close()


def _close(opening: asyncio.Future[ExecStream]) -> None:
    if not opening.cancelled() and not isinstance(opening.exception(), ServiceError):
        opening.result().close()
