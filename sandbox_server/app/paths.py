"""Preprocesses a path: removes the optional prefix and a doubled first slash, and finds the trait of its protocol."""

from collections.abc import Sequence
from functools import partial
from typing import cast

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.protocols._by_host import RAW, RawConnection
from sandbox_server.protocols._traits import PREFIX, TRAIT, Trait


class Paths:
    """Serves every path also under `prefix`, and puts the first matching trait into the scope, unless it has one."""

    def __init__(self, app: ASGIApp, prefix: str, traits: Sequence[Trait]) -> None:
        """`prefix`: without a trailing slash; "" for none."""
        self._app = app
        self._prefix = prefix
        self._traits = traits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if scope["type"] == "lifespan" or TRAIT in scope:
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        raw: bytes = scope.get("raw_path") or path.encode()
        if self._prefix and path.startswith(self._prefix + "/"):
            path, raw = path[len(self._prefix) :], raw[len(self._prefix) :]
            scope = {**scope, "path": path, "raw_path": raw, PREFIX: self._prefix}
        if raw.startswith(b"//"):  # a client's base URL that ends with a slash
            path, raw = "/" + path.lstrip("/"), b"/" + raw.lstrip(b"/")
            scope = {**scope, "path": path, "raw_path": raw}
        trait = next((trait for trait in self._traits if trait.paths.match(path)), None)
        scope = scope if trait is None else {**scope, TRAIT: trait}
        if trait is not None and trait.sockets and RAW in scope:
            cast(RawConnection, scope[RAW]).speak(partial(self._websocket, scope))
        else:
            await self._app(scope, receive, send)

    async def _websocket(self, request: Scope, scope: Scope, receive: Receive, send: Send) -> None:
        """`request`: the scope that asked for it."""
        found = {name: value for name, value in request.items() if name not in scope and name not in (RAW, "method")}
        await self._app({**scope, **found, "path": request["path"], "raw_path": request["raw_path"]}, receive, send)
