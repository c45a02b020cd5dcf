"""Boxes are in use while a request into them is answered, streams and tunnels included."""

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.boxes.use import BoxUse


class BoxUseMiddleware:
    """ASGI middleware; needed only if boxes end or sleep by being idle."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        use: BoxUse = scope["app"].state.boxes.use
        with use.request():
            await self._app(scope, receive, send)
