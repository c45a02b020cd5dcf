"""Decodes the body of an upload as it arrives; holds at most one piece of a file in memory."""

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_PIECE = 1 << 20
_THREAD_FROM = 16 << 10  # bytes; less is decompressed faster than a thread is started
_GZIP = 31  # zlib's window bits for gzip
_PARTS = 10_000
"""Files per request."""


class BadUpload(Exception):
    """The body is not in its declared format."""


@dataclass(frozen=True, slots=True)
class Part:
    """The beginning of a part; its bytes follow, then an End."""

    name: str
    filename: str
    """File name as the client sent it; may contain folders."""


class End:
    """The end of a part."""


Event = Part | bytes | End


async def unpacked(chunks: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """Yield the body without its Content-Encoding.

    Raises:
        BadUpload: the encoding is neither gzip nor identity, or the gzip data is invalid or incomplete.

    """
    if encoding in ("", "identity"):
        async for chunk in chunks:
            if chunk:
                yield chunk
        return
    if encoding != "gzip":
        raise BadUpload(f"unsupported Content-Encoding: {encoding}, supported: [gzip]")
    inflating = _Inflating()
    async for chunk in chunks:
        inflating.rest = chunk
        while inflating.rest or inflating.holds:
            piece = await inflating.piece()
            if piece:
                yield piece
    if not inflating.whole:
        raise BadUpload("error decompressing request body: it ends too soon")


class _Inflating:
    """Decompresses gzip, one piece at a time."""

    def __init__(self) -> None:
        self.rest = b""
        """Received bytes that are not decompressed yet."""
        self.holds = False
        """More output is available without further input."""
        self.whole = True
        self._zlib = zlib.decompressobj(_GZIP)

    async def piece(self) -> bytes:
        """Return the next piece. Raises BadUpload."""
        if self._zlib.eof:  # gzip files may be concatenated
            self._zlib = zlib.decompressobj(_GZIP)
        try:
            if len(self.rest) < _THREAD_FROM:
                piece = self._zlib.decompress(self.rest, _PIECE)
            else:
                piece = await asyncio.to_thread(self._zlib.decompress, self.rest, _PIECE)
        except zlib.error as error:
            raise BadUpload(f"error decompressing request body: {error}") from None
        self.whole = self._zlib.eof
        self.rest = self._zlib.unused_data if self.whole else self._zlib.unconsumed_tail
        self.holds = not self.whole and len(piece) == _PIECE
        return piece


async def parts(chunks: AsyncIterator[bytes], content_type: str) -> AsyncGenerator[Event, None]:
    """Yield the parts of a multipart body.

    Raises:
        BadUpload: the body is not multipart, or is incomplete.

    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise BadUpload("error parsing multipart form: no boundary in Content-Type")
    collector = _Collector()
    try:
        parser = MultipartParser(boundary, collector.callbacks())
        async for chunk in chunks:
            parser.write(chunk)
            while collector.events:
                yield collector.events.popleft()
        parser.finalize()
    except FormParserError as error:
        raise BadUpload(f"error reading form: {error}") from None
    if not collector.whole:
        raise BadUpload("error reading form: unexpected end")


class _Collector:
    """Turns the parser's callbacks into events."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.whole = False
        self._field = b""
        self._value = b""
        self._disposition = b""
        self._count = 0

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._on_field,
            "on_header_value": self._on_value,
            "on_header_end": self._header,
            "on_headers_finished": self._headers,
            "on_part_data": self._data,
            "on_part_end": lambda: self.events.append(End()),
            "on_end": self._end,
        }

    def _begin(self) -> None:
        self._disposition = b""
        self._count += 1
        if self._count > _PARTS:
            raise FormParserError(f"more than {_PARTS} parts")

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def _headers(self) -> None:
        options = _disposition(self._disposition)
        self.events.append(Part(options.get("name", ""), options.get("filename", "")))

    def _data(self, data: bytes, start: int, end: int) -> None:
        self.events.append(data[start:end])

    def _end(self) -> None:
        self.whole = True


def _disposition(value: bytes) -> dict[str, str]:
    options = parse_options_header(value)[1]
    return {name.decode("latin-1"): text.decode("utf-8", "surrogateescape") for name, text in options.items()}


async def content(events: AsyncIterator[Event]) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of the part that has just begun."""
    async for event in events:
        if isinstance(event, End):
            return
        if isinstance(event, bytes):
            yield event
