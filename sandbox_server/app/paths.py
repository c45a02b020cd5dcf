"""Preprocesses a request's path: removes the optional prefix, and finds the trait of its protocol."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.protocols._sockets import as_request
from sandbox_server.protocols._traits import PREFIX, TRAIT, Trait


class Paths:
    """Serves every path also under `prefix`, and puts the first matching trait into the scope, unless it has one."""

    def __init__(self, app: ASGIApp, prefix: str, traits: Sequence[Trait]) -> None:
        """`prefix`: without a trailing slash; "" for none."""
        self._app = app
        self._prefix = prefix
        self._traits = traits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI."""
        if scope["type"] == "lifespan" or TRAIT in scope:
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if self._prefix and path.startswith(self._prefix + "/"):
            path = path[len(self._prefix) :]
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            scope = {**scope, "path": path, "raw_path": raw[len(self._prefix) :], PREFIX: self._prefix}
        trait = next((trait for trait in self._traits if trait.paths.match(path)), None)
        if scope["type"] == "websocket" and not (trait is not None and trait.sockets):
            scope, receive, send = as_request(scope, receive, send)
        await self._app(scope if trait is None else {**scope, TRAIT: trait}, receive, send)
