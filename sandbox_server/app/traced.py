"""Notes the trace of a client that a request belongs to. Only in servers that send traces."""

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server import traces

_LONGEST = 200
"""Bytes of a `traceparent`; today's have 55. It is stored with the session."""


class Heard:
    """Gives the header `traceparent` to `traces`. A malformed one is ignored by whoever sends the spans."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI. A request runs in a task of its own, so what is noted concerns no other one."""
        if scope["type"] == "http":
            found = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
            if found and found.isascii() and len(found) <= _LONGEST:
                traces.hear(found.decode("ascii"))
        await self._app(scope, receive, send)
