"""Archives that another program reads and writes too, and that may come from an attacker."""

import io
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.checkpoints.archive import END, Kind, Member, Unusable, header, members, padding

names = st.binary(min_size=1, max_size=150).map(lambda name: b"/" + name.replace(b"\0", b"x").strip(b"/") + b"z")
numbers = st.integers(0, 2**32 - 2)
xattrs = st.dictionaries(
    st.sampled_from([b"user.a", "user.é".encode(), b"user.a=b%3D"]),
    st.binary(max_size=20) | st.just(b"7 a=b\n\0"),
    max_size=2,
)


@st.composite
def described(draw: st.DrawFn) -> tuple[Member, list[tuple[int, int]] | None, bytes]:
    """A member, the extents if it is sparse, and its data."""
    kind = draw(st.sampled_from(Kind))
    data, extents = draw(st.binary(max_size=1300)), None
    if kind is not Kind.FILE:
        data = b""
    elif draw(st.booleans()):
        extents = [(len(data) * 3, len(data)), (len(data) * 5, 0)]
    member = Member(
        path=draw(names),
        kind=kind,
        mode=draw(st.integers(0, 0o7777)),
        uid=draw(numbers),
        gid=draw(numbers),
        mtime_ns=draw(st.integers(-(10**18), 2 * 10**19)),
        size=len(data) * 5 if extents else len(data),
        target=draw(names) if kind in (Kind.LINK, Kind.SYMLINK) else b"",
        xattrs=draw(xattrs) if kind in (Kind.FILE, Kind.FOLDER) else {},
    )
    return member, extents, data


def packed(*parts: tuple[Member, list[tuple[int, int]] | None, bytes]) -> bytes:
    return b"".join(header(member, extents) + data + padding(len(data)) for member, extents, data in parts) + END


def unpacked(data: bytes) -> Iterator[tuple[Member, dict[int, bytes]]]:
    for member in members(io.BytesIO(data).read):
        yield member, dict(member.content)


@given(st.lists(described(), max_size=4))
def test_what_is_written_is_read(parts: list[tuple[Member, list[tuple[int, int]] | None, bytes]]) -> None:
    """A name, time, owner, attribute or hole comes back otherwise; another reader of the format disagrees."""
    archive = packed(*parts)
    read = list(unpacked(archive))
    assert len(read) == len(parts)
    with tarfile.open(fileobj=io.BytesIO(archive), errors="surrogateescape") as other_reader:
        others = other_reader.getmembers()
    for (member, extents, data), (back, content), other in zip(parts, read, others, strict=True):
        for name in ("path", "kind", "mode", "uid", "gid", "mtime_ns", "size", "target", "xattrs"):
            assert getattr(back, name) == getattr(member, name), name
        begin = extents[0][0] if extents else 0
        assert content == ({begin: data} if data else {})
        assert (other.mode, other.uid, other.gid) == (member.mode, member.uid, member.gid)
        assert other.size == (member.size if member.kind is Kind.FILE else 0)
        assert other.name.encode("utf-8", "surrogateescape") == member.path


@given(st.lists(described(), min_size=1, max_size=2), st.data())
def test_anything_else_is_refused(
    parts: list[tuple[Member, list[tuple[int, int]] | None, bytes]], data: st.DataObject
) -> None:
    """A damaged or forged archive ends in another error, or gives a path that is not absolute."""
    archive = bytearray(packed(*parts))
    for _ in range(data.draw(st.integers(1, 3))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    archive = archive[: data.draw(st.integers(0, len(archive)))]
    try:
        for member, _ in unpacked(bytes(archive)):
            assert member.path.startswith(b"/")
    except Unusable:
        pass


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.GNUTYPE_LONGNAME, b"g"])
def test_devices_and_old_forms_are_refused(kind: bytes) -> None:
    """A device of the host is made for a container, or a form is misread."""
    told = tarfile.TarInfo("/dev/x")
    told.type = kind
    with pytest.raises(Unusable):
        list(unpacked(told.tobuf(tarfile.USTAR_FORMAT)))
