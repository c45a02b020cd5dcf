"""A streamed response that is cheap when short, and closes its source if the client disconnects.

Starlette's StreamingResponse watches for a disconnect from the start, in a task group. This takes 0.3 ms of the 2 ms of
CPU time of a short command (measured with Starlette 1.10, anyio 4.16). Most streams here end before a client could have
disconnected.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

_WATCHED_AFTER_S = 0.2


class Last(bytes):
    """The last piece; it is sent together with the end of the body."""


class Streamed(Response):
    """Sends pieces as they come; when the client disconnects, stops waiting for the next one and closes `pieces`."""

    def __init__(
        self, pieces: AsyncGenerator[bytes, None], media_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._pieces = pieces
        self._left = False
        self.status_code = 200
        self.background = None
        self.media_type = media_type
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        task = asyncio.current_task()
        assert task is not None
        watching: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        timer = loop.call_later(_WATCHED_AFTER_S, lambda: watching.append(loop.create_task(self._watch(receive, task))))
        try:
            try:
                await self._send(send)
            finally:
                timer.cancel()
                for watch in watching:
                    watch.cancel()
                await self._pieces.aclose()
        except asyncio.CancelledError:
            if not self._left:
                raise
            task.uncancel()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self._pieces:
            more = not isinstance(piece, Last)
            message: Message = {"type": "http.response.body", "body": piece, "more_body": more}
            await send(message)
            if not more:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, task: "asyncio.Task[object]") -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        task.cancel()
