"""Cuts a stream into blocks so that archives of similar files share most of their blocks.

A block ends before an archive member whose name hashes to a chosen value, so unchanged files fall into the same blocks
whatever precedes them. A block without such a name ends at a fixed size. Any bytes can be cut: the archive comes from a
container and is not trusted.
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
_ONE_IN = 8  # share of members whose name ends a block


class Cutter:
    """Cuts one stream."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._looked = 0

    def feed(self, data: bytes | bytearray) -> Iterator[bytes]:
        """Add `data` and yield the blocks that it completes. All blocks together with `rest` are the whole stream."""
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
        """The last block; may be empty."""
        return bytes(self._held)

    def _end(self, data: bytes | bytearray, begin: int) -> int | None:
        """End of the block that starts at `begin`, or None if more data is needed to tell.

        Blocks end at multiples of a tar record, so the headers of the next block are at known offsets.
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
