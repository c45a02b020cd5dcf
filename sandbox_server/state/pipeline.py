"""One connection to Redis for the short exchanges of every action, pipelined: written at once, answered in order.

A pool lends one connection per exchange, and its bookkeeping, tasks and timers cost more than the exchange (with
redis-py 8.1 90 to 200 us of CPU; here 12 to 80, less the more exchanges coincide). Here an exchange is a write and a
future, and one timer bounds them all, since the oldest one is the first to be late.
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
    """An error reply of Redis; the message is its text."""


class _Broken(Exception):
    """The connection ended before the reply came; it is unknown whether the command arrived."""


_pack = cast(Callable[[tuple[Word, ...]], bytes], hiredis.pack_command)  # its own type hint says a tuple of one


def packed(words: Sequence[Word]) -> bytes:
    """A command in Redis's wire format."""
    try:
        return _pack(tuple(words))
    except UnicodeEncodeError:  # a cwd may hold bytes that are not UTF-8
        return _pack(tuple(word.encode("utf-8", "surrogatepass") if isinstance(word, str) else word for word in words))


class _Replies:
    """Collects the replies to several commands for one future: an error reply, or the list of all."""

    def __init__(self, future: asyncio.Future[Any], count: int) -> None:
        self._future = future
        self._count = count
        self._replies: list[Any] = []
        self.done = future.done

    def set_result(self, reply: Any) -> None:
        """Take the next reply."""
        self._replies.append(reply)
        if len(self._replies) == self._count:
            self._future.set_result(self._replies)

    def set_exception(self, error: Exception) -> None:
        """Fail, unless another reply has failed before."""
        if not self._future.done():
            self._future.set_exception(error)


class _Link(asyncio.Protocol):
    """One open connection."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ErrorAnswer)
        self._waiting: deque[tuple[asyncio.Future[Any] | _Replies, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is established."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Pass each reply to the exchange it belongs to."""
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
        except (hiredis.ProtocolError, IndexError):  # not Redis, or a reply that nobody waits for
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all waiting exchanges."""
        self.open = False
        if self._timer is not None:
            self._timer.cancel()
        for waiter, _ in self._waiting:
            if not waiter.done():
                waiter.set_exception(_Broken(str(exc or "the connection was closed")))
        self._waiting.clear()

    def send(self, command: bytes, deadline: float, count: int = 1) -> asyncio.Future[Any]:
        """A future reply: StateUnavailable after `deadline` (loop clock), _Broken if the connection ends.

        With `count` above 1, `command` holds that many commands, and the result is the list of their replies.
        """
        waiter: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None or not self.open:
            waiter.set_exception(_Broken("the connection is closed"))
            return waiter
        if count == 1:
            self._waiting.append((waiter, deadline))
        else:
            self._waiting.extend([(_Replies(waiter, count), deadline)] * count)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._late)
        self._transport.write(command)
        return waiter

    def close(self) -> None:
        """Close it at once."""
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
            # Redis hangs, or its host is gone without closing: a new connection will show which.
            self.close()
        elif self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][1], self._late)


WHAT_NEXT = "; is it running, and is SANDBOX_REDIS_URL correct?"
"""The end of an error's text if Redis cannot be reached."""
_PASSING = ("LOADING", "READONLY", "MASTERDOWN")
"""Error replies during a restart or failover of Redis."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Pipeline:
    """Opens the connection on first use, and again after it broke."""

    def __init__(self, pattern: AbstractConnection, timeout_s: float, outage_s: float) -> None:
        """`pattern` is a connection that is never opened; it holds the address and credentials.

        `timeout_s` bounds each attempt of an exchange; an unavailable Redis is retried for `outage_s` seconds.
        """
        self._pattern = pattern
        self._timeout_s = timeout_s
        self._outage_s = outage_s
        self._link: _Link | None = None
        self._opening: asyncio.Task[_Link] | None = None

    async def exchange(self, command: bytes, count: int = 1) -> Any:
        """Send a command; the reply is bytes, int, None or a list of them. `count`: see `_Link.send`.

        A command whose connection broke is sent again, so it must give the same result if it arrives twice.

        Raises:
            ErrorAnswer, StateUnavailable.

        """
        ends = asyncio.get_running_loop().time() + self._outage_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._try(command, count)
            except StateUnavailable:
                if asyncio.get_running_loop().time() + pause_s > ends:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _try(self, command: bytes, count: int) -> Any:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        for _ in range(2):
            link = self._link
            if link is None or not link.open:
                link = await self._opened(deadline)
            try:
                return await link.send(command, deadline, count)
            except _Broken as broken:
                error = broken
            except ErrorAnswer as answer:
                if not str(answer).startswith(_PASSING):
                    raise
                raise StateUnavailable(f"Redis: {answer}") from answer
        raise StateUnavailable(f"Redis: {error}{WHAT_NEXT}")

    def close(self) -> None:
        """Close the connection."""
        if self._opening is not None:
            self._opening.cancel()
        if self._link is not None:
            self._link.close()

    async def _opened(self, deadline: float) -> _Link:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._settled)
        try:
            # A task shared by all callers, so that cancelling one does not affect the others.
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._opening)
        except TimeoutError:
            raise StateUnavailable(f"Redis gave no answer within {self._timeout_s:g} s.") from None

    def _settled(self, task: asyncio.Task[_Link]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._link = task.result()

    async def _open(self) -> _Link:
        loop, pattern = asyncio.get_running_loop(), self._pattern
        link = _Link(self._timeout_s)
        try:
            async with asyncio.timeout(self._timeout_s):
                if isinstance(pattern, UnixDomainSocketConnection):
                    await loop.create_unix_connection(lambda: link, pattern.path)
                else:
                    tcp = cast(Connection, pattern)
                    tls = pattern.ssl_context.get() if isinstance(pattern, SSLConnection) else None
                    await loop.create_connection(lambda: link, tcp.host, int(tcp.port), ssl=tls)
                for words in _greeting(pattern):
                    await link.send(packed(words), loop.time() + self._timeout_s)
        except (OSError, TimeoutError, ErrorAnswer, _Broken) as error:
            link.close()
            raise StateUnavailable(f"Redis: {error or type(error).__name__}") from error
        except BaseException:
            link.close()
            raise
        return link


def _greeting(pattern: AbstractConnection) -> list[list[Word]]:
    words: list[list[Word]] = []
    if pattern.password:
        words.append(["AUTH", *([pattern.username] if pattern.username else []), pattern.password])
    if pattern.db:
        words.append(["SELECT", pattern.db])
    return words
