"""The first look at a request's path: the prefix that it may have, and the trait that a protocol gives it."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.protocols._traits import TRAIT, Trait


class Paths:
    """Serves every path under `prefix` too, and puts the first trait that fits into the scope, where none is yet."""

    def __init__(self, app: ASGIApp, prefix: str, traits: Sequence[Trait]) -> None:
        """`prefix` without a slash at its end; empty: none."""
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
            scope = {**scope, "path": path, "raw_path": raw[len(self._prefix) :]}
        trait = next((trait for trait in self._traits if trait.paths.match(path)), None)
        await self._app(scope if trait is None else {**scope, TRAIT: trait}, receive, send)
