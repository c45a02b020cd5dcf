"""What all envd calls share: finding the box, and translating errors."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from fastapi import APIRouter, Request, Response

from sandbox_server import telemetry
from sandbox_server.boxes.boxes import BoxView
from sandbox_server.errors import (
    InfrastructureError,
    RequestError,
    SandboxLost,
    SandboxPaused,
    ServiceError,
    Unauthorized,
    UnknownProcess,
    UnknownSession,
    UnknownUser,
)
from sandbox_server.protocols._parts import boxes_of
from sandbox_server.protocols._wire import json_answer
from sandbox_server.protocols.e2b import connect
from sandbox_server.protocols.e2b.access import BoxGone, Operation, box_of
from sandbox_server.protocols.e2b.connect import Code, ConnectError, M
from sandbox_server.sandbox.base import Sandbox

log = telemetry.logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A request and its box."""

    request: Request
    view: BoxView
    sandbox: Sandbox
    user: str
    """The request's user, else the box's."""


Unary = Callable[[Call, M], Awaitable[dict[str, object]]]
Streaming = Callable[[Call, M], Awaitable[Response]]


async def opened(request: Request, operation: Operation | None = None) -> Call:
    """Find the box of a request.

    Raises:
        Unauthorized, BoxGone, OwnedElsewhere, SandboxLost.

    """
    view = await box_of(request, operation)
    try:
        sandbox = await boxes_of(request).sandbox(view)
    except (UnknownSession, SandboxPaused):
        raise BoxGone(view.sid) from None
    named = request.query_params.get("username") if operation else connect.basic_user(request.headers)
    return Call(request, view, sandbox, named or view.box.user)


def unary(router: APIRouter, path: str, model: type[M]) -> Callable[[Unary[M]], Unary[M]]:
    """Decorator: make a function the handler of a unary call."""

    def added(answer: Unary[M]) -> Unary[M]:
        async def endpoint(request: Request) -> Response:
            try:
                call = await opened(request)
                return connect.unary(await answer(call, await connect.read_unary(request, model)))
            except BoxGone as gone:
                return plain_error(gone)
            except (ConnectError, ServiceError, OSError, ValueError, OverflowError) as error:
                return connect.unary_error(as_connect(error))

        endpoint.__doc__ = answer.__doc__
        router.add_api_route(path, endpoint, methods=["POST"], name=path, response_class=Response)
        return answer

    return added


def streaming(router: APIRouter, path: str, model: type[M]) -> Callable[[Streaming[M]], Streaming[M]]:
    """Decorator: make a function the handler of a call that is answered by a stream."""

    def added(answer: Streaming[M]) -> Streaming[M]:
        async def endpoint(request: Request) -> Response:
            try:
                call = await opened(request)
                return await answer(call, await connect.read_one(request, model))
            except BoxGone as gone:
                return plain_error(gone)
            except (ConnectError, ServiceError, OSError, ValueError, OverflowError) as error:
                return connect.stream_error(as_connect(error))

        endpoint.__doc__ = answer.__doc__
        router.add_api_route(path, endpoint, methods=["POST"], name=path, response_class=Response)
        return answer

    return added


_CODES: tuple[tuple[type[Exception], Code], ...] = (
    (UnknownUser, Code.UNAUTHENTICATED),
    (Unauthorized, Code.UNAUTHENTICATED),
    (UnknownProcess, Code.NOT_FOUND),
    (SandboxPaused, Code.UNAVAILABLE),
    (RequestError, Code.INVALID_ARGUMENT),
    # makes the client check whether the box still lives, instead of running its command again
    (SandboxLost, Code.UNAVAILABLE),
    # all other faults of the service: nothing was run, so clients may retry
    (ServiceError, Code.INTERNAL),
    (FileNotFoundError, Code.NOT_FOUND),
    (FileExistsError, Code.ALREADY_EXISTS),
    (NotADirectoryError, Code.INVALID_ARGUMENT),
    (IsADirectoryError, Code.INVALID_ARGUMENT),
    (PermissionError, Code.PERMISSION_DENIED),
    (OverflowError, Code.FAILED_PRECONDITION),
    (ValueError, Code.INVALID_ARGUMENT),
)


def as_connect(error: Exception) -> ConnectError:
    """The Connect error for a failed call."""
    if isinstance(error, ConnectError):
        return error
    if isinstance(error, InfrastructureError):
        log.error("envd call failed", code=error.code, error=error.detail)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)
    return ConnectError(code, text_of(error))


def text_of(error: Exception) -> str:
    """One sentence for the client."""
    if isinstance(error, ServiceError):
        return error.detail
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def plain_error(error: ServiceError, status: int | None = None) -> Response:
    """An error in the format of E2B's proxy and envd's plain routes; an integer `code` keeps clients from retrying."""
    status = status or error.http_status
    body: dict[str, object] = {"code": status, "message": error.detail}
    if isinstance(error, BoxGone):
        body["sandboxId"] = error.sid
    return json_answer(body, status)
