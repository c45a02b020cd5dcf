"""Answers for web pages of elsewhere (CORS): a browser lets a page of another origin read only what says so."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.protocols._by_host import TARGET

_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")


class Origins:
    """Lets pages of `origins` (`*`: of any) send requests with an API key or a token, and read the answers.

    A request to a port of a box is left to the program there.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._open = CORSMiddleware(app, allow_origins=list(origins), allow_methods=_METHODS, allow_headers=["*"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI."""
        await (self._app if TARGET in scope else self._open)(scope, receive, send)
