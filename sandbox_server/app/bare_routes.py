"""Bypasses FastAPI's router for routes that take the bare request and make their own response.

Matching, solving empty dependencies and exit stacks cost an action 170 us of CPU (measured with FastAPI 0.163: 215 us
per request through the router, 45 us without). The routes stay declared, so the OpenAPI document and the answers to
other methods and paths come from the router.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.errors import ServiceError

Endpoint = Callable[[Request], Awaitable[Response]]
_BARE = {"request": Request, "return": Response}


def bare_routes(routers: Iterable[APIRouter]) -> dict[tuple[str, str], Endpoint]:
    """(method, path) -> endpoint of each route without parameters that takes a Request and returns a Response."""
    found: dict[tuple[str, str], Endpoint] = {}
    for route in (route for router in routers for route in router.routes if isinstance(route, APIRoute)):
        if "{" not in route.path and inspect.get_annotations(route.endpoint) == _BARE:
            for method in route.methods or ():
                found.setdefault((method, route.path), route.endpoint)  # the first route wins, as in the router
    return found


class BareRouteMiddleware:
    """Answers the bare routes itself and passes all other requests on."""

    def __init__(
        self,
        app: ASGIApp,
        routes: Mapping[tuple[str, str], Endpoint],
        refuse: Callable[[Request, ServiceError], Awaitable[Response]],
        admit: Callable[[Request, str], Awaitable[None]] | None = None,
    ) -> None:
        """`refuse` makes the response to a ServiceError, as the router's handler does; `admit` raises one if the key
        may not use the path's route.
        """
        self._app = app
        self._routes = routes
        self._refuse = refuse
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        endpoint = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            if self._admit is not None:
                await self._admit(request, scope["path"])
            response = await endpoint(request)
        except ServiceError as error:
            response = await self._refuse(request, error)
        await response(scope, receive, send)
