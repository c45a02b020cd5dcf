"""CORS: allows web pages of some other origins to use the server from a browser."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.protocols._by_host import TARGET

_READ = ("Retry-After", "X-Next-Token")
"""Headers of an answer that E2B's SDK reads; a browser shows only these, and the usual ones, to a page."""
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


class Cors:
    """Allows pages of `origins` (`*`: of any) to send requests with an API key or a token, and to read the answers.

    A request to a port of a box is left to the program there.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app, allow_origins=list(origins), allow_methods=_METHODS, allow_headers=["*"], expose_headers=_READ
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        await (self._app if TARGET in scope else self._open)(scope, receive, send)
