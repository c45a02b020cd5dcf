"""Returns every error as JSON `{"code", "detail", "retryable"}`; an unforeseen error gets an id that is in the log."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.app.access import send_error
from sandbox_server.boxes.boxes import Boxes
from sandbox_server.errors import (
    InfrastructureError,
    RequestError,
    SandboxLost,
    SandboxPaused,
    ServiceError,
    Stopping,
    UnknownSession,
)
from sandbox_server.lifecycle import SessionState
from sandbox_server.protocols._traits import TRAIT, Trait
from sandbox_server.protocols._wire import malformed, refusal, retry_after
from sandbox_server.telemetry import INFRA_ERRORS, logger

log = logger(__name__)


class UnhandledErrors:
    """Turns an exception without a handler into a 500; a client that hung up is not an error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except ClientDisconnect:
            log.info("client hung up while it sent its request", path=scope["path"])
        except asyncio.CancelledError:  # by uvicorn, when half of SANDBOX_STOP_S has passed since the server's SIGTERM
            log.info("request cut off by the server's end", method=scope["method"], path=scope["path"])
            if not begun:
                stopping = Stopping("The server has stopped before the request was done; send it again.")
                await send_error(scope, send, stopping)
        except Exception:
            error_id = secrets.token_hex(8)
            log.exception("unforeseen error", error_id=error_id, method=scope["method"], path=scope["path"])
            if not begun:
                await send_error(
                    scope, send, ServiceError(f"Internal error; its trace is in the log under {error_id}.")
                )


async def service_error(request: Request, error: ServiceError) -> Response:
    """The response to an error that a route raised."""
    if isinstance(error, SandboxLost) and (sid := request.path_params.get("sid")):
        error = await _of_its_box(request, str(sid), error)
    if isinstance(error, InfrastructureError):
        INFRA_ERRORS.labels(error.code).inc()
        log.error("request failed", path=request.url.path, code=error.code, error=error.detail)
    if answer := _of_protocol(request, error):
        return answer
    if error.http_status == 503:
        return _json(503, refusal(error), retry_after(error))
    body = {"code": error.code, "detail": error.detail, "retryable": error.retryable}
    return _json(error.http_status, body, retry_after(error) if error.http_status == 429 else None)


async def _of_its_box(request: Request, sid: str, lost: SandboxLost) -> ServiceError:
    """The error of a request whose box has no container any more: its client ended or paused the box meanwhile."""
    with suppress(ServiceError):
        view = await cast(Boxes, request.app.state.boxes).find(sid)
        if view is not None and view.record.state == SessionState.ENDED:
            return UnknownSession(f"box {sid} has ended ({view.record.end_reason})")
        if view is not None and view.paused:
            return SandboxPaused(f"box {sid} was paused meanwhile; connect to it, which resumes it")
    return lost


def install(app: FastAPI) -> None:
    """Install the handlers of errors that routes or the router raise."""
    app.exception_handler(ServiceError)(service_error)

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> Response:
        faults = ((".".join(str(part) for part in fault["loc"][1:]), str(fault["msg"])) for fault in error.errors())
        return await service_error(request, malformed(faults))

    @app.exception_handler(HTTPException)
    async def routing(request: Request, error: HTTPException) -> Response:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        detail = f"{request.method} {request.url.path}: {error.detail}; see /docs."
        unrouted = RequestError(detail)
        unrouted.http_status = error.status_code
        if answer := _of_protocol(request, unrouted):
            return answer
        return _json(error.status_code, {"code": code, "detail": detail, "retryable": False}, error.headers)


def _of_protocol(request: Request, error: ServiceError) -> Response | None:
    """The error in the format of the path's protocol; None if that has no format of its own."""
    trait: Trait | None = request.scope.get(TRAIT)
    if trait is None or trait.refuse is None:
        return None
    refused = trait.refuse(error, request.headers)
    return _json(refused.status, refused.body, refused.headers)


def _json(status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(body), status, headers, media_type="application/json")
