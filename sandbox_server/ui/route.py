"""What all pages share: empty form fields do not filter, and errors are pages too."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from sandbox_server.errors import InfrastructureError, OwnedElsewhere, ServiceError
from sandbox_server.telemetry import INFRA_ERRORS, logger
from sandbox_server.ui.render import HEADERS, page, warm

log = logger(__name__)


class NoKey(Exception):
    """The page requires a login."""


class PageRoute(APIRoute):
    """A route whose errors are rendered as pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler with the error handling around it."""
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            warm()
            request = _without_empty(request)
            try:
                return await answer(request)
            except NoKey:
                return _to_login(request)
            except OwnedElsewhere:
                raise  # answered by that node
            except ServiceError as error:
                if isinstance(error, InfrastructureError):
                    INFRA_ERRORS.labels(error.code).inc()
                    log.error("a page failed", path=request.url.path, code=error.code, error=error.detail)
                return await page(request, "refused.html", error.http_status, code=error.code, detail=error.detail)
            except RequestValidationError as error:
                reasons = "; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in error.errors())
                return await page(request, "refused.html", 422, code="malformed_request", detail=reasons)

        return answered


def _without_empty(request: Request) -> Request:
    query: bytes = request.scope["query_string"]
    kept = b"&".join(pair for pair in query.split(b"&") if not pair.endswith(b"="))
    return request if kept == query else Request({**request.scope, "query_string": kept}, request.receive)


def _to_login(request: Request) -> Response:
    """Redirect to the login form, which redirects back."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    to = quote(asked if request.method == "GET" else "/ui", safe="")
    return RedirectResponse(f"/ui/login?to={to}", 303, HEADERS)
