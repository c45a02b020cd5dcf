"""Files that many boxes get, kept once on this node by the SHA-256 of what they hold.

A trainer installs the same tools in each of its sandboxes: it sends them here once, and from here they are copied. The
least recently used go when the room is needed.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from io import RawIOBase
from pathlib import Path

from sandbox_server import telemetry
from sandbox_server.errors import DataDiskFull, InfrastructureError, MalformedRequest, RequestTooLarge, UnknownBlob

log = telemetry.logger(__name__)

_CHUNK = 1 << 20
_PARTIAL = ".part"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Blobs:
    """In `folder`, which is this server's alone. `owner`: name of the API key that stores and reads; "": none."""

    def __init__(self, folder: Path, *, most_bytes: int, room: Callable[[], None] = lambda: None) -> None:
        """`most_bytes`: of all together, and so of one. What a killed server left half-written is removed.

        `room()` raises DataDiskFull when the disk should take nothing more.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f"*{_PARTIAL}"):
            left.unlink()
        self._folder = folder
        self._most = most_bytes
        self._room = room

    def size(self, sha256: str, owner: str = "") -> int:
        """Its bytes; asking for it counts as a use. Raises UnknownBlob."""
        path = self._path(sha256, owner)
        try:
            os.utime(path)
            return path.stat().st_size
        except FileNotFoundError:
            raise UnknownBlob(f"this node has no blob {sha256}; PUT it to /v1/blobs/{sha256}") from None

    async def put(self, sha256: str, chunks: AsyncIterator[bytes], owner: str = "") -> int:
        """Store what `chunks` gives, unless it is there; its bytes. Whoever else has asked for it finds it whole.

        Raises:
            MalformedRequest: it is not what its name says. RequestTooLarge: longer than all blobs may be together.
            DataDiskFull: no room on this node's disk; nothing of it is kept. InfrastructureError: its disk fails.

        """
        part = self._folder / f"{secrets.token_hex(8)}{_PARTIAL}"
        digest, came = hashlib.sha256(), 0
        try:
            with _stored(sha256):
                # what is not buffered here cannot fail at its close
                stream = part.open("xb", buffering=0)
            with stream:
                async for chunk in chunks:
                    came += len(chunk)
                    if came > self._most:
                        raise RequestTooLarge(f"blobs take {self._most >> 20} MiB at most, together (SANDBOX_BLOBS_MB)")
                    with _stored(sha256):
                        # in a thread: 190 MB take half a second, which no session should wait for
                        await asyncio.to_thread(self._add, digest, stream, chunk)
            if digest.hexdigest() != sha256:
                raise MalformedRequest(f"what was sent has the SHA-256 {digest.hexdigest()}, not {sha256}")
            with _stored(sha256):
                path = self._path(sha256, owner)
                await asyncio.to_thread(self._make_room, came, path.name)
                part.replace(path)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        return came

    async def read(self, sha256: str, owner: str = "") -> AsyncGenerator[bytes, None]:
        """What it holds, also when it goes meanwhile. Raises UnknownBlob with the first chunk."""
        self.size(sha256, owner)
        with self._path(sha256, owner).open("rb") as stream:
            while chunk := await asyncio.to_thread(stream.read, _CHUNK):
                yield chunk

    def _path(self, sha256: str, owner: str) -> Path:
        """Each owner has files of its own: what another one stored cannot be had, nor asked about, by its hash."""
        return self._folder / (f"{sha256}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}" if owner else sha256)

    def _add(self, digest: "hashlib._Hash", stream: RawIOBase, chunk: bytes) -> None:
        self._room()
        digest.update(chunk)
        left = memoryview(chunk)
        while left:
            left = left[stream.write(left) or 0 :]

    def _make_room(self, wanted: int, but: str) -> None:
        """Let the least recently used go until `wanted` bytes fit."""
        kept = []
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                facts = path.stat()
                if path.suffix != _PARTIAL and path.name != but:
                    kept.append((facts.st_mtime_ns, facts.st_size, path))
        total = wanted + sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self._most:
                return
            path.unlink(missing_ok=True)
            total -= size
            log.info("blob removed for others", sha256=path.name, bytes=size)


@contextlib.contextmanager
def _stored(sha256: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        told = f"blob {sha256} cannot be stored: {error.strerror}; free space in SANDBOX_DATA_DIR, then send it again"
        if error.errno in _FULL:
            raise DataDiskFull(told) from error
        raise InfrastructureError(told) from error
