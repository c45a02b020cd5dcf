"""Bodies of uploads: their files come out complete, however the network splits them."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.protocols.e2b.uploads import BadUpload, Part, content, parts, unpacked

NAMES = st.text(st.characters(blacklist_characters='"\\\r\n;', blacklist_categories=["Cs", "Cc"]), min_size=1)


async def stream(data: bytes, at: Iterable[int]) -> AsyncIterator[bytes]:
    """`data` in pieces."""
    places = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    for a, b in pairwise(places):
        yield data[a:b]


async def joined(chunks: AsyncIterator[bytes]) -> bytes:
    """All chunks, joined."""
    return b"".join([chunk async for chunk in chunks])


async def files(body: bytes, at: Iterable[int]) -> list[tuple[str, str, bytes]]:
    """(field, file name, bytes) of each part."""
    found = []
    events = parts(stream(body, at), "multipart/form-data; boundary=xyz")
    async for event in events:
        assert isinstance(event, Part)
        found.append((event.name, event.filename, await joined(content(events))))
    return found


def form(*entries: tuple[str, bytes]) -> bytes:
    """A body as httpx writes it."""
    head = 'Content-Disposition: form-data; name="file"; filename="%s"\r\nContent-Type: text/plain\r\n\r\n'
    return b"".join(b"--xyz\r\n" + (head % name).encode() + data + b"\r\n" for name, data in entries) + b"--xyz--\r\n"


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=500) | st.sampled_from([b"\r\n--xy", b"\r\n--xyz ", b"--xyz"[:4]]))),
    st.lists(st.integers(0)),
)
def test_multipart(entries: list[tuple[str, bytes]], at: list[int]) -> None:
    """A split boundary, or data that looks like one, does not end up in a file."""
    wanted = [("file", name, data) for name, data in entries if b"\r\n--xyz" not in b"\r\n" + data]
    assert asyncio.run(files(form(*[(name, data) for _, name, data in wanted]), at)) == wanted


def test_folders_in_a_file_name() -> None:
    """Several files are distinguished by their paths alone."""
    assert asyncio.run(files(form(("/workspace/a b/ü.txt", b"x")), [])) == [("file", "/workspace/a b/ü.txt", b"x")]


@given(st.binary(max_size=500), st.lists(st.integers(0)))
def test_no_multipart(body: bytes, at: list[int]) -> None:
    """A malformed body is the client's error."""
    try:
        asyncio.run(files(body, at))
    except BadUpload as refused:
        assert "form" in str(refused)


def test_a_form_that_breaks_off() -> None:
    """Half a file is not taken for the whole."""
    with pytest.raises(BadUpload):
        asyncio.run(files(form(("a", b"data"))[:-12], []))


@given(st.lists(st.binary(max_size=4000), min_size=1), st.lists(st.integers(0)))
def test_gzip(members: list[bytes], at: list[int]) -> None:
    """Compressed data comes out unchanged, including concatenated members."""
    body = b"".join(gzip.compress(member) for member in members)
    assert asyncio.run(joined(unpacked(stream(body, at), "gzip"))) == b"".join(members)


def test_a_bomb_is_unpacked_in_pieces() -> None:
    """64 MB of zeros are never in memory at once."""

    async def sizes() -> list[int]:
        return [len(piece) async for piece in unpacked(stream(gzip.compress(bytes(64 << 20)), []), "gzip")]

    pieces = asyncio.run(sizes())
    assert sum(pieces) == 64 << 20
    assert max(pieces) <= 1 << 20


@pytest.mark.parametrize("body", [b"not gzip", gzip.compress(b"x" * 1000, mtime=0)[:-9]])
def test_bad_gzip(body: bytes) -> None:
    """A truncated file is not taken for the whole."""
    with pytest.raises(BadUpload):
        asyncio.run(joined(unpacked(stream(body, []), "gzip")))


def test_an_encoding_that_is_not_spoken() -> None:
    """An unsupported encoding is refused: otherwise the compressed bytes would be written."""
    with pytest.raises(BadUpload):
        asyncio.run(joined(unpacked(stream(b"x", []), "br")))
