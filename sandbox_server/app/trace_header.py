"""Middleware that reads the client's trace from a request; only in servers that send traces."""

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server import traces

_LONGEST = 200
"""Bytes of a `traceparent`; today's have 55. It is stored with the session."""


class TraceHeader:
    """Passes the header `traceparent` to `traces`, which ignores a malformed one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call. Each request has its own task, so its trace does not affect others."""
        if scope["type"] == "http":
            found = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
            if found and found.isascii() and len(found) <= _LONGEST:
                traces.note_traceparent(found.decode("ascii"))
        await self._app(scope, receive, send)
