"""Cuts a stream into blocks, so that archives of nearly the same files share most of them.

A block ends before a member of the archive whose name says so. Files that did not change then lie in the same blocks,
whatever lies before them. Where nothing says so, a block ends at a fixed size. Any bytes can be cut: the archive comes
out of a container, and nothing here believes it.
"""

import zlib
from collections.abc import Iterator

_RECORD = 512  # bytes; each member of a tar archive begins at a multiple
_MAGIC = b"ustar\x0000"  # of a POSIX header
_MAGIC_AT = 257
_NAME = 100  # bytes at the beginning of a header
_LEAST = 64 << 10  # bytes of a block, except for the last one
_ENOUGH = 1 << 20  # bytes after which a block ends before the next member, whatever its name
_MOST = 4 << 20  # bytes of a block
_ONE_IN = 8  # of members end a block by their name


class Cutter:
    """Cuts one stream."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._looked = 0

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """Yield the blocks that are complete with `data`; together with `rest` they are the whole stream."""
        if self._held:
            self._held += data
            data = self._held
        view, begin = memoryview(data), 0
        while (end := self._end(data, begin)) is not None:
            yield bytes(view[begin:end])
            begin = end
            self._looked = 0
        view.release()
        if begin or data is not self._held:
            self._held = bytearray(data[begin:])

    def rest(self) -> bytes:
        """The last block, perhaps empty."""
        return bytes(self._held)

    def _end(self, data: bytes | bytearray, begin: int) -> int | None:
        """Where the block ends that begins at `begin`, if that is known yet.

        Blocks end at multiples of a record, so that the headers of the next block are where this looks for them.
        """
        at = begin + max(self._looked, _LEAST + _MAGIC_AT)
        while (found := data.find(_MAGIC, at)) >= 0 and found < begin + _MOST:
            header = found - _MAGIC_AT
            size = header - begin
            if size % _RECORD == 0 and (size >= _ENOUGH or zlib.crc32(data[header : header + _NAME]) % _ONE_IN == 0):
                return header
            at = found + 1
        self._looked = max(at, len(data) - len(_MAGIC) + 1) - begin
        return begin + _MOST if len(data) - begin >= _MOST else None
