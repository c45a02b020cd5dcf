"""MCP's messages: JSON-RPC with one POST per message, in the protocol's two generations. Pure.

Modern (2026-07-28): every request carries its version and its client's capabilities in `_meta`, and repeats some fields
in headers. Legacy (2025-03-26 to 2025-11-25): the client calls `initialize` first; a request without a version counts
as legacy. The server keeps no state between requests of either: it gives out no Mcp-Session-Id and ignores one that a
client sends.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers

from sandbox_server import __version__
from sandbox_server.errors import ServiceError
from sandbox_server.protocols._traits import Refusal
from sandbox_server.protocols._wire import retry_after

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26")
VERSIONS = (MODERN, *LEGACY)
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

_META = "io.modelcontextprotocol/"
_INFO = {"name": "sandbox-server", "version": __version__}
_VERSION, _METHOD, _NAME = "mcp-protocol-version", "mcp-method", "mcp-name"
_SHOWN = 100  # characters of a client's text in an error


class RpcError(Exception):
    """A JSON-RPC error as the response to a message. A policy's mistake gives a tool result instead."""

    def __init__(self, code: int, message: str, *, data: object = None, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status


@dataclass(frozen=True, slots=True)
class Rpc:
    """One request or notification."""

    method: str
    params: Mapping[str, object]
    id: int | str | None
    """None: a notification."""
    modern: bool


def request_id(value: object) -> int | str | None:
    """The id of a message that may be invalid; None if it has no usable one."""
    found = value.get("id") if isinstance(value, Mapping) else None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def read(value: object, headers: Headers) -> Rpc:
    """Parse a message. Raises RpcError."""
    if not isinstance(value, Mapping) or value.get("jsonrpc") != "2.0" or not isinstance(value.get("method"), str):
        raise RpcError(INVALID_REQUEST, "The body must be one JSON-RPC 2.0 request or notification, no batch.")
    method: str = value["method"]
    if "id" in value and request_id(value) is None:
        raise RpcError(INVALID_REQUEST, "The id must be a string or an integer.")
    params = value.get("params", {})
    if not isinstance(params, Mapping):
        raise RpcError(INVALID_PARAMS, "params must be an object.")
    meta = params.get("_meta", {})
    in_meta = meta.get(f"{_META}protocolVersion") if isinstance(meta, Mapping) else None
    version = _one(headers, _VERSION) or in_meta
    if in_meta is not None and version != in_meta:
        raise RpcError(HEADER_MISMATCH, f"The header {_VERSION} differs from the body.")
    if version is not None and version not in VERSIONS:
        asked = str(version)[:_SHOWN]
        data = {"supported": list(VERSIONS), "requested": asked}
        raise RpcError(UNSUPPORTED_VERSION, f"Unsupported protocol version {asked!r}.", data=data)
    modern = version == MODERN
    if modern and "id" in value:
        _check_modern(method, params, meta, headers)
    return Rpc(method, params, request_id(value), modern)


def _check_modern(method: str, params: Mapping[str, object], meta: object, headers: Headers) -> None:
    """Check the `_meta` fields and the headers of a modern request. Raises RpcError."""
    if not isinstance(meta, Mapping):
        raise RpcError(INVALID_PARAMS, "params._meta must be an object.")
    for field, kind in (("protocolVersion", str), ("clientCapabilities", Mapping)):
        if not isinstance(meta.get(_META + field), kind):
            raise RpcError(INVALID_PARAMS, f"params._meta must have {_META}{field}.")
    mirrored = [(_VERSION, meta[f"{_META}protocolVersion"]), (_METHOD, method)]
    if method == "tools/call":
        mirrored.append((_NAME, params.get("name")))
    for header, inside in mirrored:
        found = _one(headers, header)
        if header == _NAME:
            found = _decoded(found)
        if found != inside:
            raise RpcError(HEADER_MISMATCH, f"The header {header} is missing or differs from the body.")


def _one(headers: Headers, name: str) -> str | None:
    """The header's value. Raises RpcError: it occurs twice."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise RpcError(HEADER_MISMATCH, f"The header {name} occurs twice; send it once.")
    return found[0] if found else None


def _decoded(value: str | None) -> str | None:
    """A header's value, which may be in MCP's base64 form; None if it is not valid."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[len("=?base64?") : -len("?=")], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def result(rpc: Rpc, value: Mapping[str, object], *, cache_ms: int | None = None) -> dict[str, object]:
    """The response with this result. `cache_ms`: milliseconds that a client may cache it; None: no such field."""
    whole = dict(value)
    if rpc.modern:
        given = whole.get("_meta", {})
        meta = dict(given) if isinstance(given, Mapping) else {}
        whole |= {"resultType": "complete", "_meta": {**meta, f"{_META}serverInfo": _INFO}}
        if cache_ms is not None:
            whole |= {"ttlMs": cache_ms, "cacheScope": "private"}
    return {"jsonrpc": "2.0", "id": rpc.id, "result": whole}


def initialized(rpc: Rpc, instructions: str) -> dict[str, object]:
    """The response to a legacy client's `initialize`: its version if it is one of ours, else our newest legacy one."""
    asked = rpc.params.get("protocolVersion")
    version = asked if asked in LEGACY else LEGACY[0]
    return result(
        rpc,
        {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": _INFO,
            "instructions": instructions,
        },
    )


def discovered(rpc: Rpc, instructions: str) -> dict[str, object]:
    """The response to `server/discover`."""
    found = {"supportedVersions": list(VERSIONS), "capabilities": {"tools": {}}, "instructions": instructions}
    return result(rpc, found, cache_ms=0)


def error(of: int | str | None, error: RpcError) -> dict[str, object]:
    """The response with this error."""
    described: dict[str, object] = {"code": error.code, "message": error.message}
    if error.data is not None:
        described["data"] = error.data
    return {"jsonrpc": "2.0", "id": of, "error": described}


def refuse(failure: ServiceError, headers: Headers) -> Refusal:
    """The response to a request refused before it was read as JSON-RPC: for its key, origin or size, or by a fault."""
    data = {"code": failure.code, "detail": failure.detail, "retryable": failure.retryable}
    code = INTERNAL if failure.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR else INVALID_REQUEST
    also = {"Allow": "POST"} if failure.http_status == HTTPStatus.METHOD_NOT_ALLOWED else {}
    body = error(None, RpcError(code, failure.detail, data=data))
    return Refusal(failure.http_status, body, {**retry_after(failure), **also})
