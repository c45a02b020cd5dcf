"""Files for many boxes, stored once on this node under the SHA-256 of their content.

A trainer that installs the same tools in each sandbox uploads them once and has them copied from here. The least
recently used blobs are removed when space is needed.
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
    """Blobs in `folder`, which only this server uses. `owner`: name of the API key; "": none."""

    def __init__(self, folder: Path, *, most_bytes: int, room: Callable[[], None] = lambda: None) -> None:
        """`most_bytes`: limit on the total, and so on each blob. Removes partial files of a killed server.

        `room()` raises DataDiskFull if the disk has too little free space.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob(f"*{_PARTIAL}"):
            left.unlink()
        self._folder = folder
        self._most = most_bytes
        self._room = room

    def size(self, sha256: str, owner: str = "") -> int:
        """Size in bytes; counts as a use. Raises UnknownBlob."""
        path = self._path(sha256, owner)
        try:
            os.utime(path)
            return path.stat().st_size
        except FileNotFoundError:
            raise UnknownBlob(f"this node has no blob {sha256}; PUT it to /v1/blobs/{sha256}") from None

    async def put(self, sha256: str, chunks: AsyncIterator[bytes], owner: str = "") -> int:
        """Store the content of `chunks` and return its size. Other readers see only complete blobs.

        Raises:
            MalformedRequest: the SHA-256 differs. RequestTooLarge: larger than the limit on all blobs.
            DataDiskFull: no space on this node's disk; nothing is kept. InfrastructureError: the disk fails.

        """
        part = self._folder / f"{secrets.token_hex(8)}{_PARTIAL}"
        digest, came = hashlib.sha256(), 0
        try:
            with _stored(sha256):
                # unbuffered, so that close() cannot fail
                stream = part.open("xb", buffering=0)
            with stream:
                async for chunk in chunks:
                    came += len(chunk)
                    if came > self._most:
                        raise RequestTooLarge(f"blobs take {self._most >> 20} MiB at most, together (SANDBOX_BLOBS_MB)")
                    with _stored(sha256):
                        # in a thread: 190 MB take half a second, which would block all sessions
                        await asyncio.to_thread(self._add, digest, stream, chunk)
            if digest.hexdigest() != sha256:
                raise MalformedRequest(f"the content has the SHA-256 {digest.hexdigest()}, not {sha256}")
            with _stored(sha256):
                path = self._path(sha256, owner)
                await asyncio.to_thread(self._make_room, came, path.name)
                part.replace(path)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
        return came

    async def read(self, sha256: str, owner: str = "") -> AsyncGenerator[bytes, None]:
        """Its content, even if it is removed while being read. Raises UnknownBlob at the first chunk."""
        self.size(sha256, owner)
        with self._path(sha256, owner).open("rb") as stream:
            while chunk := await asyncio.to_thread(stream.read, _CHUNK):
                yield chunk

    def _path(self, sha256: str, owner: str) -> Path:
        """Each owner has separate files, so that nobody can read or probe for another's content by its hash."""
        return self._folder / (f"{sha256}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}" if owner else sha256)

    def _add(self, digest: "hashlib._Hash", stream: RawIOBase, chunk: bytes) -> None:
        self._room()
        digest.update(chunk)
        left = memoryview(chunk)
        while left:
            left = left[stream.write(left) or 0 :]

    def _make_room(self, wanted: int, but: str) -> None:
        """Remove the least recently used blobs until `wanted` bytes fit."""
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
