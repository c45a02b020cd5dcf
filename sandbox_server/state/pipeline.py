"""One connection to Redis for the short exchanges of every action: written as they come, answered in order.

A pool lends a connection for each exchange; its bookkeeping, tasks and timers cost more than the exchange (measured
with redis-py 8.1: 90 to 200 us of CPU, here 12 to 80, the less the more of them come together). Here an exchange is a
write and a future, and one timer bounds all of them: the oldest is the first that can be late.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection

from sandbox_server.errors import StateUnavailable

Word = str | bytes | int | float


class ErrorAnswer(Exception):
    """Redis answers that it will not; its words are the message."""


class _Broken(Exception):
    """The connection ended before the answer came; whether the exchange arrived is not known."""


def packed(words: Sequence[Word]) -> bytes:
    """A command as it goes over the wire."""
    pack = cast(Callable[[tuple[Word, ...]], bytes], hiredis.pack_command)  # its own hint says a tuple of one
    try:
        return pack(tuple(words))
    except UnicodeEncodeError:  # a cwd may hold bytes that are no UTF-8
        return pack(tuple(word.encode("utf-8", "surrogatepass") if isinstance(word, str) else word for word in words))


class _Line(asyncio.Protocol):
    """One open connection."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ErrorAnswer)
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but ancestry
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Give each answer to the exchange it belongs to."""
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                waiter, _ = self._waiting.popleft()
                if waiter.done():  # its caller was cancelled
                    continue
                if isinstance(answer, ErrorAnswer):
                    waiter.set_exception(answer)
                else:
                    waiter.set_result(answer)
        except (hiredis.ProtocolError, IndexError):  # not Redis, or an answer to nothing
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """All who wait learn it."""
        self.open = False
        if self._timer is not None:
            self._timer.cancel()
        for waiter, _ in self._waiting:
            if not waiter.done():
                waiter.set_exception(_Broken(str(exc or "the connection was closed")))
        self._waiting.clear()

    def send(self, command: bytes, deadline: float) -> asyncio.Future[Any]:
        """The answer to come; StateUnavailable past `deadline` (of the loop's clock), _Broken when the line ends."""
        waiter: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None or not self.open:
            waiter.set_exception(_Broken("the connection is closed"))
            return waiter
        self._waiting.append((waiter, deadline))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._late)
        self._transport.write(command)
        return waiter

    def close(self) -> None:
        """End it at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def _late(self) -> None:
        self._timer = None
        now = self._loop.time()
        late = [waiter for waiter, deadline in self._waiting if deadline <= now and not waiter.done()]
        for waiter in late:
            waiter.set_exception(StateUnavailable(f"Redis gave no answer within {self._timeout_s:g} s."))
        if late:
            # it hangs, or its host is gone without a word: a new connection tells which
            self.close()
        elif self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][1], self._late)


_PASSING = ("LOADING", "READONLY", "MASTERDOWN")
"""Error answers of a Redis that restarts, or whose place another one takes."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Pipeline:
    """Opens the line when it is needed, again when it broke."""

    def __init__(self, pattern: AbstractConnection, timeout_s: float, outage_s: float) -> None:
        """`pattern` is never opened: it says where Redis is and how to enter.

        `timeout_s` bounds each try of an exchange; a Redis that is away is tried again for `outage_s`.
        """
        self._pattern = pattern
        self._timeout_s = timeout_s
        self._outage_s = outage_s
        self._line: _Line | None = None
        self._opening: asyncio.Task[_Line] | None = None

    async def exchange(self, command: bytes) -> Any:
        """The answer: bytes, int, None or a list of them.

        What the line's end cut off is sent again, so the command must give the same result when it arrives twice.

        Raises:
            ErrorAnswer, StateUnavailable.

        """
        ends = asyncio.get_running_loop().time() + self._outage_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._try(command)
            except StateUnavailable:
                if asyncio.get_running_loop().time() + pause_s > ends:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _try(self, command: bytes) -> Any:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        for _ in range(2):
            line = self._line
            if line is None or not line.open:
                line = await self._opened(deadline)
            try:
                return await line.send(command, deadline)
            except _Broken as broken:
                error = broken
            except ErrorAnswer as answer:
                if not str(answer).startswith(_PASSING):
                    raise
                raise StateUnavailable(f"Redis: {answer}") from answer
        raise StateUnavailable(f"Redis: {error}")

    def close(self) -> None:
        """End the line."""
        if self._opening is not None:
            self._opening.cancel()
        if self._line is not None:
            self._line.close()

    async def _opened(self, deadline: float) -> _Line:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._settled)
        try:
            # a task that all who need it share: the cancellation of one is none of the others'
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._opening)
        except TimeoutError:
            raise StateUnavailable(f"Redis gave no answer within {self._timeout_s:g} s.") from None

    def _settled(self, task: asyncio.Task[_Line]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._line = task.result()

    async def _open(self) -> _Line:
        loop, pattern = asyncio.get_running_loop(), self._pattern
        line = _Line(self._timeout_s)
        try:
            async with asyncio.timeout(self._timeout_s):
                if isinstance(pattern, UnixDomainSocketConnection):
                    await loop.create_unix_connection(lambda: line, pattern.path)
                else:
                    tcp = cast(Connection, pattern)
                    tls = pattern.ssl_context.get() if isinstance(pattern, SSLConnection) else None
                    await loop.create_connection(lambda: line, tcp.host, int(tcp.port), ssl=tls)
                for words in _greeting(pattern):
                    await line.send(packed(words), loop.time() + self._timeout_s)
        except (OSError, TimeoutError, ErrorAnswer, _Broken) as error:
            line.close()
            raise StateUnavailable(f"Redis: {error or type(error).__name__}") from error
        except BaseException:
            line.close()
            raise
        return line


def _greeting(pattern: AbstractConnection) -> list[list[Word]]:
    words: list[list[Word]] = []
    if pattern.password:
        words.append(["AUTH", *([pattern.username] if pattern.username else []), pattern.password])
    if pattern.db:
        words.append(["SELECT", pattern.db])
    return words
