"""Two middlewares for requests to a port of a box, by host name or by E2B's headers.

The first recognizes them before all other middlewares run; the second answers them before the routes.
"""

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.boxes.tunnels import Tunnels
from sandbox_server.errors import ServiceError
from sandbox_server.protocols._by_host import TARGET, ByHost, Refuse
from sandbox_server.protocols._traits import TRAIT
from sandbox_server.protocols.e2b import ports
from sandbox_server.protocols.e2b.access import SANDBOX_ID


class Hosts:
    """Parses the host name of each request into its scope. For envd's port, this server's own routes answer."""

    def __init__(self, app: ASGIApp, domain: str) -> None:
        self._app = app
        self._names = ports.Names(domain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        target = self._target(Headers(scope=scope)) if scope["type"] == "http" else None
        if target is not None and target.port == ports.ENVD_PORT:
            own = SANDBOX_ID.encode()
            headers = [(name, value) for name, value in scope["headers"] if name != own]
            scope = {**scope, "headers": [*headers, (own, target.sid.encode())]}
        elif target is not None:
            scope = {**scope, TARGET: target, TRAIT: ports.TRAIT}
        await self._app(scope, receive, send)

    def _target(self, headers: Headers) -> ports.Target | None:
        named = self._names.read(headers.get("host", ""))
        return ports.by_headers(headers) if named is None else named


class BoxPorts:
    """Answers requests to ports of boxes, and passes all others on."""

    def __init__(self, app: ASGIApp, tunnels: Tunnels, idle_s: float, refuse: Refuse) -> None:
        self._app = app
        self._tunnels = tunnels
        self._idle_s = idle_s
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if TARGET not in scope:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await ports.answer(request, self._tunnels, self._idle_s)
        except ServiceError as error:
            response = await self._refuse(request, error)
        await response(scope, receive, send)


BY_HOST = ByHost(mark=Hosts, answer=BoxPorts)
