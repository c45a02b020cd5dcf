"""The Connect protocol with JSON, as far as the envd API needs it: unary calls, and streams in both directions.

A stream's frame is a byte of flags, four bytes of length (big-endian) and JSON of that length; the last frame, flag 2,
holds the error, if any. A stream's HTTP status is always 200.

Source: connectrpc.com/docs/protocol.
"""

import base64
import json
import re
import struct
from collections.abc import AsyncGenerator, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from sandbox_server.protocols._numbers import whole
from sandbox_server.protocols._streamed import Last, Streamed
from sandbox_server.protocols._values import MOST as MOST_VALUES
from sandbox_server.protocols._values import TOO_MANY, faults_of, holds_too_many, may_hold_too_many

UNARY = "application/json"
STREAM = "application/connect+json"
COMPRESSED, LAST = 1, 2  # frame flags
_HEAD = struct.Struct(">BL")
MOST = 24 << 20
"""Maximum bytes of a client's message: a piece of input (16 MB in base64), or a command with its environment."""
_LONGEST_MS = 10**15
_HALVES = re.compile(r"(?P<other>\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|\\ud[89a-f][0-9a-f]{2}")
"""In ASCII JSON: an escaped backslash or a whole surrogate pair, which are kept; or a lone surrogate."""
_KEEPALIVE_S = 90.0
"""Keepalive interval in seconds if the client names none; the same as envd's."""
_SHORTEST_KEEPALIVE_S = 1.0


class Code(StrEnum):
    """The protocol's error codes."""

    CANCELED = "canceled"
    UNKNOWN = "unknown"
    INVALID_ARGUMENT = "invalid_argument"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"
    UNIMPLEMENTED = "unimplemented"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    UNAUTHENTICATED = "unauthenticated"


_STATUS = {
    Code.CANCELED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}


class ConnectError(Exception):
    """A failed call; sent to the client as it is."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def json(self) -> dict[str, str]:
        """The error's JSON form."""
        return {"code": self.code.value, "message": self.message}


class Message(BaseModel):
    """Base class of requests: protobuf's JSON names; unknown fields are ignored, as by protobuf."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


M = TypeVar("M", bound=Message)


def parse(model: type[M], body: bytes | bytearray) -> M:
    """Parse a message from JSON.

    Raises:
        ConnectError: invalid_argument.

    """
    if may_hold_too_many(body) and holds_too_many(body, most_texts=MOST_VALUES):
        raise ConnectError(Code.RESOURCE_EXHAUSTED, TOO_MANY)
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise ConnectError(Code.INVALID_ARGUMENT, f"the message is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConnectError(Code.INVALID_ARGUMENT, "the message must be a JSON object")
    try:
        # protobuf's JSON uses null for an unset field
        return model.model_validate({name: field for name, field in value.items() if field is not None})
    except ValidationError as error:
        faults = faults_of(error)
        reasons = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'the message'}: {fault['msg']}" for fault in faults)
        raise ConnectError(Code.INVALID_ARGUMENT, reasons) from None


async def read_unary(request: Request, model: type[M]) -> M:
    """Read the message of a unary call.

    Raises:
        ConnectError.

    """
    _expect(request, UNARY, "content-encoding")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        _bound(len(body))
    return parse(model, body)


async def read_one(request: Request, model: type[M]) -> M:
    """Read the single message of a call that is answered by a stream.

    Raises:
        ConnectError.

    """
    async for message in read_stream(request, model):
        return message
    raise ConnectError(Code.INVALID_ARGUMENT, "the stream ended before its first message")


async def read_stream(request: Request, model: type[M]) -> AsyncGenerator[M, None]:
    """Yield the messages of a stream as they arrive.

    Raises:
        ConnectError.

    """
    _expect(request, STREAM, "connect-content-encoding")
    frames = Frames()
    async for chunk in request.stream():
        for flags, body in frames.feed(chunk):
            if flags & LAST:
                return
            yield parse(model, body)
    frames.end()


class Frames:
    """Splits a stream into frames."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (flags, content) of each complete frame.

        Raises:
            ConnectError: a frame is too long, compressed or invalid.

        """
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            flags, size = _HEAD.unpack_from(self._buffer)
            if flags & COMPRESSED:
                raise ConnectError(Code.UNIMPLEMENTED, "compressed messages are not supported; send them uncompressed")
            if flags & ~LAST:
                raise ConnectError(Code.INVALID_ARGUMENT, f"no frame begins with {flags:#04x}")
            _bound(size, self._most)
            if len(self._buffer) < _HEAD.size + size:
                return
            content = bytes(self._buffer[_HEAD.size : _HEAD.size + size])
            del self._buffer[: _HEAD.size + size]
            yield flags, content

    def end(self) -> None:
        """Call at the stream's end. Raises ConnectError if the last frame is incomplete."""
        if self._buffer:
            raise ConnectError(Code.INVALID_ARGUMENT, "the stream ended within a message")


def frame(content: bytes, flags: int = 0) -> bytes:
    """Encode one frame."""
    return _HEAD.pack(flags, len(content)) + content


def last_frame(error: ConnectError | None = None) -> Last:
    """The last frame of every stream."""
    return Last(frame(dumped({"error": error.json} if error else {}), LAST))


def timeout_s(headers: Mapping[str, str]) -> float | None:
    """The call's time limit in seconds; None: no limit.

    Raises:
        ConnectError: it is not a number of milliseconds.

    """
    text = headers.get("connect-timeout-ms", "")
    if not text:
        return None
    milliseconds = whole(text, _LONGEST_MS)
    if milliseconds is None:
        raise ConnectError(Code.INVALID_ARGUMENT, "Connect-Timeout-Ms must be a number of milliseconds")
    return milliseconds / 1000 or None


def keepalive_s(headers: Mapping[str, str]) -> float:
    """The interval of keepalives on a stream, in seconds."""
    seconds = whole(headers.get("keepalive-ping-interval", ""), _LONGEST_MS)
    return _KEEPALIVE_S if seconds is None else max(_SHORTEST_KEEPALIVE_S, float(seconds))


def basic_user(headers: Mapping[str, str]) -> str:
    """The user in HTTP Basic authentication (the password is ignored); "" if there is none.

    Raises:
        ConnectError: unauthenticated, if the header cannot be parsed.

    """
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[0]
    except ValueError:
        raise ConnectError(Code.UNAUTHENTICATED, "Authorization is not Basic base64(user:)") from None


def dumped(value: Mapping[str, object]) -> bytes:
    """Encode as ASCII JSON. Lone surrogates, as in a file name that is not UTF-8, become U+FFFD, as in Go; with them,
    parsers of protobuf's JSON would reject the whole message.
    """
    text = json.dumps(value)
    return (_HALVES.sub(_whole, text) if "\\ud" in text else text).encode()


def _whole(match: re.Match[str]) -> str:
    return match[0] if match["other"] else "\\ufffd"


def unary(value: Mapping[str, object]) -> Response:
    """The response to a unary call."""
    return Response(dumped(value), media_type=UNARY)


def unary_error(error: ConnectError) -> Response:
    """The response to a failed unary call."""
    return Response(dumped(error.json), _STATUS.get(error.code, 500), media_type=UNARY)


def stream(frames: AsyncGenerator[bytes, None]) -> Response:
    """A streamed response; `frames` ends with `last_frame`."""
    return Streamed(frames, STREAM)


def stream_error(error: ConnectError) -> Response:
    """The response to a stream that failed before its first message."""
    return Response(last_frame(error), media_type=STREAM)


def _expect(request: Request, media_type: str, encoding: str) -> None:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != media_type:
        raise ConnectError(
            Code.UNIMPLEMENTED, f"send {media_type}: only JSON is supported here, of the Connect protocol"
        )
    if request.headers.get(encoding, "identity") != "identity":
        raise ConnectError(Code.UNIMPLEMENTED, "compressed messages are not supported; send them uncompressed")


def _bound(size: int, most: int = MOST) -> None:
    if size > most:
        raise ConnectError(Code.RESOURCE_EXHAUSTED, f"a message of {size} bytes is longer than {most}")
