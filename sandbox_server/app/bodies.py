"""Middleware that bounds request bodies: each one, and all that are held at a time. Plain ASGI, to see all requests."""

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.app.access import has, send_error
from sandbox_server.errors import BodyTooSlow, CapacityError, RequestTooLarge, ServiceError
from sandbox_server.protocols._numbers import is_whole, whole

_DRAINED = 4
"""Multiple of the bound that is read and discarded, so that a client that is still sending can read the refusal."""
_UNCOUNTED = 1 << 16
"""Bodies up to this size never wait: a connection's own buffer holds as much."""
_SMALL = 1 << 20
_SMALL_SHARE = 0.25
"""Share of the room that only bodies up to _SMALL may use, so that they do not wait behind larger ones."""


class ByteBudget:
    """A bounded number of bytes. Callers that find too few left are served in the order in which they came."""

    def __init__(self, size: int, *, wait_s: float) -> None:
        self._left = size
        self._wait_s = wait_s
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> bool:
        """Take `size` bytes; False: they did not become free within `wait_s`."""
        if size <= self._left and not self._waiting:
            self._left -= size
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        taken = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s):
                    await turn
            taken = not turn.cancelled()
            return taken
        finally:
            if not turn.cancelled() and not taken:  # the caller was cancelled just when its turn came
                self.give(size)
            self._admit()

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self._left += size
        self._admit()

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0][1].cancelled() or self._waiting[0][0] <= self._left):
            size, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._left -= size
                turn.set_result(None)


@dataclass(frozen=True, slots=True)
class _Bounds:
    max_bytes: int
    timeout_s: float
    all_bytes: int


class BoundBody:
    """Answers 413 past `max_bytes` (by Content-Length, else once that much was read), 408 past `timeout_s`.

    All bodies together may have `all_bytes`. Each takes its Content-Length (`max_bytes` without one) before it is read,
    and gives it back when its request is over. If too little is left, the request waits up to `wait_s` seconds, then it
    gets 503.

    Before a refusal, some of what the client still sends is read and dropped, for at most `timeout_s` seconds.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float, *, all_bytes: int, wait_s: float) -> None:
        self._app = app
        self._bounds = _Bounds(max_bytes, timeout_s, all_bytes)
        small = max(_SMALL, int(all_bytes * _SMALL_SHARE))
        self._small = ByteBudget(small, wait_s=wait_s)
        self._large = ByteBudget(max(max_bytes, all_bytes - small), wait_s=wait_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if scope["type"] != "http" or has(scope, "streams"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        size = whole(length, self._bounds.max_bytes)
        body = _Body(receive, self._large if size is None or size > _SMALL else self._small, self._bounds)
        try:
            if is_whole(length) and size is None:
                raise _too_large(self._bounds)
            if size is not None and size > _UNCOUNTED:
                await body.take(size)
        except ServiceError as error:
            if "expect" not in headers:  # with it the client sends no body before our answer
                await body.drain()
            await send_error(scope, send, error)
            return
        try:
            await self._app(scope, body.receive, send)
        finally:
            body.close()


class _Body:
    """The body of one request."""

    def __init__(self, receive: Receive, room: ByteBudget, bounds: _Bounds) -> None:
        self._receive = receive
        self._room = room
        self._bounds = bounds
        self._until = asyncio.get_running_loop().time() + bounds.timeout_s
        self._held = self._came = 0
        self._whole = False

    async def take(self, size: int) -> None:
        """Take room for the body before more of it is read. Raises CapacityError."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        taken = await self._room.take(size)
        self._until += loop.time() - began
        if not taken:
            raise CapacityError(
                f"the bodies of other requests take up the {self._bounds.all_bytes / 2**20:g} MB that all have together"
                " (SANDBOX_BODIES_MB); send the request again",
                reason="bodies",
            )
        self._held = size

    async def receive(self) -> Message:
        """The ASGI call. Raises BodyTooSlow, RequestTooLarge, CapacityError."""
        if self._whole:  # the only message left is the client's disconnect, at any time
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise BodyTooSlow(f"The body did not come within {self._bounds.timeout_s:g} s.") from None
        self._whole = not message.get("more_body", False)
        self._came += len(message.get("body", b""))
        try:
            if self._came > self._bounds.max_bytes:
                raise _too_large(self._bounds)
            if self._came > _UNCOUNTED and not self._held:  # it has no Content-Length
                await self.take(self._bounds.max_bytes)
        except ServiceError:
            if not self._whole:
                await self.drain()
            raise
        if self._whole and self._held > self._came:
            self._room.give(self._held - self._came)
            self._held = self._came
        return message

    async def drain(self) -> None:
        """Read and drop some of what still comes, so that a client that is sending can read the refusal."""
        came = 0
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._until):
                while came < _DRAINED * self._bounds.max_bytes:
                    message = await self._receive()
                    came += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    def close(self) -> None:
        """Give back the room that the body has taken; call when its request is over."""
        if self._held:
            self._room.give(self._held)


def _too_large(bounds: _Bounds) -> RequestTooLarge:
    return RequestTooLarge(f"The body is larger than {bounds.max_bytes / 2**20:g} MB (SANDBOX_MAX_BODY_MB).")
