"""GET and POST /files: whole files, streamed."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from sandbox_server.errors import SandboxDiskFull, ServiceError, UnknownUser
from sandbox_server.protocols._flow import prepend, with_idle_timeout
from sandbox_server.protocols._streamed import Streamed
from sandbox_server.protocols._wire import json_answer
from sandbox_server.protocols.e2b.access import Operation
from sandbox_server.protocols.e2b.connect import ConnectError
from sandbox_server.protocols.e2b.envd_call import Call, opened, plain_error, text_of
from sandbox_server.protocols.e2b.envd_filesystem import NAMESPACE
from sandbox_server.protocols.e2b.uploads import BadUpload, Part, content, parts, unpacked
from sandbox_server.sandbox.filesystem import FileInfo

ROUTER = APIRouter(include_in_schema=False)

_METADATA = "x-metadata-"
_METADATA_BYTES = 4096
_KEY_BYTES = 246
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_DRAINED = 1 << 30
"""Maximum bytes that are read and discarded after a refusal, so that a client that is still sending can read it."""

_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (UnknownUser, 401),
    (SandboxDiskFull, 507),
    (FileNotFoundError, 404),
    (IsADirectoryError, 400),
    (NotADirectoryError, 400),
    (ValueError, 400),
    (BadUpload, 400),
)


@ROUTER.get("/files", response_class=Response)
async def download(request: Request) -> Response:
    """A file's bytes."""
    call = await _opened(request, "read")
    if isinstance(call, Response):
        return call
    path = request.query_params.get("path", "")
    data = call.sandbox.get(path, user=call.user)
    try:
        first = await anext(data, b"")
    except (ServiceError, OSError, ValueError) as error:
        return _failed(error, path)
    name = path.rstrip("/").rpartition("/")[2]
    headers = {"Content-Disposition": f"inline; filename*=utf-8''{quote(name, errors='surrogateescape')}"}
    return Streamed(prepend(first, data), "application/octet-stream", headers)


@ROUTER.post("/files", response_class=Response)
async def upload(request: Request) -> Response:
    """Write one file (application/octet-stream) or several (multipart/form-data)."""
    call = await _opened(request, "write")
    if isinstance(call, Response):
        return call
    path = request.query_params.get("path")
    body = with_idle_timeout(request.stream())
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        attributes = _attributes(request)
        plain = unpacked(body, request.headers.get("content-encoding", "").strip().lower())
        async with aclosing(plain):
            if kind == "application/octet-stream":
                if path is None:
                    raise BadUpload("path query parameter is required for raw body upload")
                written = [await _put(call, path, plain, attributes)]
            elif kind.startswith("multipart/"):
                written = await _put_parts(call, path, plain, attributes)
            else:
                raise BadUpload(
                    f"unsupported content type: {kind}, expected multipart/form-data or application/octet-stream"
                )
    except ClientDisconnect:
        raise
    except (BadUpload, ServiceError, OSError, ValueError) as error:
        await _drain(body)
        return _failed(error, path or "")
    return json_answer([_written(info) for info in written])


async def _opened(request: Request, operation: Operation) -> Call | Response:
    try:
        return await opened(request, operation)
    except ConnectError as error:
        return json_answer({"code": 401, "message": error.message}, 401)
    except ServiceError as error:
        return plain_error(error)


async def _put(call: Call, path: str, data: AsyncIterator[bytes], attributes: dict[str, str]) -> FileInfo:
    return await call.sandbox.put(path, data, user=call.user, attributes=attributes, namespace=NAMESPACE)


async def _put_parts(
    call: Call, path: str | None, body: AsyncIterator[bytes], attributes: dict[str, str]
) -> list[FileInfo]:
    written: list[FileInfo] = []
    named: set[str] = set()
    async with aclosing(parts(body, call.request.headers["content-type"])) as events:
        async for event in events:
            if not isinstance(event, Part) or event.name != "file":
                continue
            target = path if path is not None else event.filename
            if target in named:
                raise BadUpload(
                    f"you cannot upload multiple files to the same path '{target}' in one upload request, only the"
                    " first specified file was uploaded"
                )
            named.add(target)
            written.append(await _put(call, target, content(events), attributes))
    return written


async def _drain(body: AsyncIterator[bytes]) -> None:
    came = 0
    try:
        async for chunk in body:
            came += len(chunk)
            if came > _DRAINED:
                return
    except (ClientDisconnect, TimeoutError, RuntimeError):
        return  # the client has disconnected


def _attributes(request: Request) -> dict[str, str]:
    """The X-Metadata-* headers as attributes. Raises BadUpload: not printable ASCII, or too long."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower().removeprefix(_METADATA)
        if key and key != name.lower():
            found.setdefault(key, value)
    for key, value in found.items():
        if not (_PRINTABLE.fullmatch(key) and _PRINTABLE.fullmatch(value)):
            raise BadUpload(f"invalid metadata: {key[:50]!r} and its value must be printable ASCII")
        if len(key) > _KEY_BYTES:
            raise BadUpload(f"invalid metadata: a key is longer than {_KEY_BYTES} bytes")
    if sum(len(NAMESPACE) + 1 + len(key) + len(value) for key, value in found.items()) > _METADATA_BYTES:
        raise BadUpload(f"invalid metadata: more than {_METADATA_BYTES} bytes in all")
    return found


def _written(info: FileInfo) -> dict[str, object]:
    shown: dict[str, object] = {"name": info.name, "path": info.path, "type": "file"}
    if info.attributes:
        shown["metadata"] = dict(info.attributes)
    return shown


def _failed(error: Exception, path: str) -> Response:
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    message = f"path '{path}' does not exist" if status == 404 else text_of(error)
    return json_answer({"code": status, "message": message}, status)
