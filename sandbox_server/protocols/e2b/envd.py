"""envd, which E2B runs inside each sandbox; here the server answers for it, for all boxes."""

from fastapi import APIRouter, Request, Response

from sandbox_server.errors import SandboxLost, ServiceError
from sandbox_server.protocols.e2b import envd_files, envd_filesystem, envd_processes, envd_watch
from sandbox_server.protocols.e2b.access import BoxGone
from sandbox_server.protocols.e2b.envd_call import opened, plain_error

_PARTS = (envd_processes, envd_filesystem, envd_watch, envd_files)
# flat, because `app.bare_routes` looks for plain routes only in a protocol's own router
ROUTER = APIRouter(routes=[route for part in _PARTS for route in part.ROUTER.routes])


@ROUTER.get("/health", include_in_schema=False)
async def health(request: Request) -> Response:
    """204 while the box runs, 502 once it has ended."""
    try:
        await opened(request)
    except SandboxLost:
        return plain_error(BoxGone(request.headers.get("e2b-sandbox-id", "")))
    except ServiceError as error:
        return plain_error(error)
    return Response(status_code=204)
