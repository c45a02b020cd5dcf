"""The body of an upload, taken apart as it comes: nothing of a file is held longer than one piece."""

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
_THREAD_FROM = 16 << 10  # bytes; less is unpacked sooner than a thread is told
_GZIP = 31  # zlib's window bits for gzip
_PARTS = 10_000
"""Files of one request."""


class BadUpload(Exception):
    """The body is not what it claims to be."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part's beginning; its bytes follow, then its end."""

    name: str
    filename: str
    """As it was sent, with folders."""


class End:
    """Of a part."""


Event = Part | bytes | End


async def unpacked(chunks: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """The body without its Content-Encoding.

    Raises:
        BadUpload: it is neither gzip nor identity, or no whole gzip.

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
    """Unpacks gzip, a piece at a time."""

    def __init__(self) -> None:
        self.rest = b""
        """What came and was not unpacked yet."""
        self.holds = False
        """There is more to be had without more to come."""
        self.whole = True
        self._zlib = zlib.decompressobj(_GZIP)

    async def piece(self) -> bytes:
        """The next one. Raises BadUpload."""
        if self._zlib.eof:  # gzip files may stand one after the other
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
    """The parts of a multipart body.

    Raises:
        BadUpload: it is none, or breaks off.

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
    """Turns the parser's calls into events."""

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
    """The bytes of the part that has just begun."""
    async for event in events:
        if isinstance(event, End):
            return
        if isinstance(event, bytes):
            yield event
