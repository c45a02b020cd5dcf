"""The blob store: blobs are stored completely or not at all, within a bound, least recently used removed first."""

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_server.boxes.blobs import Blobs
from sandbox_server.errors import MalformedRequest, RequestTooLarge, UnknownBlob


async def pieces(data: bytes, *, breaks: bool = False) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 10):
        yield data[at : at + 10]
    if breaks:
        raise ConnectionResetError("the client left")


async def stored(blobs: Blobs, data: bytes) -> str:
    sha256 = hashlib.sha256(data).hexdigest()
    assert await blobs.put(sha256, pieces(data)) == len(data)
    return sha256


async def test_what_was_put_is_read(tmp_path: Path) -> None:
    """Also for the next server."""
    sha256 = await stored(Blobs(tmp_path, most_bytes=1000), b"x" * 95)
    after = Blobs(tmp_path, most_bytes=1000)
    assert after.size(sha256) == 95
    assert b"".join([chunk async for chunk in after.read(sha256)]) == b"x" * 95


async def test_the_least_recently_used_go(tmp_path: Path) -> None:
    """A lookup counts as a use; a removed blob can still be read to its end."""
    blobs = Blobs(tmp_path, most_bytes=100)
    first, second = await stored(blobs, b"1" * 40), await stored(blobs, b"2" * 40)
    reading = blobs.read(second)
    assert await anext(reading)
    for sha256, used in ((first, 1), (second, 2)):
        os.utime(tmp_path / sha256, (used, used))
    blobs.size(first)
    third = await stored(blobs, b"3" * 40)
    assert [blobs.size(sha256) for sha256 in (first, third)] == [40, 40]
    with pytest.raises(UnknownBlob):
        blobs.size(second)
    await reading.aclose()


async def test_nothing_half_is_left(tmp_path: Path) -> None:
    """An interrupted upload, wrong content, too much of it, and what a killed server left."""
    (tmp_path / "0.part").write_bytes(b"left")
    blobs = Blobs(tmp_path, most_bytes=100)
    sha256 = hashlib.sha256(b"x" * 50).hexdigest()
    with pytest.raises(MalformedRequest, match="not " + sha256):
        await blobs.put(sha256, pieces(b"y" * 50))
    with pytest.raises(RequestTooLarge, match="SANDBOX_BLOBS_MB"):
        await blobs.put(sha256, pieces(b"x" * 101))
    with pytest.raises(ConnectionResetError):
        await blobs.put(sha256, pieces(b"x" * 50, breaks=True))
    assert os.listdir(tmp_path) == []
