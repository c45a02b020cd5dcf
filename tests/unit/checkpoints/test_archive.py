"""Archives that another program reads and writes too, and that may come from an attacker."""

import io
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.checkpoints.archive import END, BadArchive, Kind, Member, header, members, padding

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
    except BadArchive:
        pass


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.GNUTYPE_LONGNAME, b"g"])
def test_devices_and_old_forms_are_refused(kind: bytes) -> None:
    """A device of the host is made for a container, or a form is misread."""
    told = tarfile.TarInfo("/dev/x")
    told.type = kind
    with pytest.raises(BadArchive):
        list(unpacked(told.tobuf(tarfile.USTAR_FORMAT)))


def forged(whole: bytes, *, size: int, at: int = 0) -> bytes:
    """The archive with another size in the header at `at`, whose checksum is right."""
    block = whole[at : at + 124] + b"%011o\0" % size + whole[at + 136 : at + 512]
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    return whole[:at] + block[:148] + b"%06o\0 " % total + block[156:] + whole[at + 512 :]


A_FILE, A_LINK = Member(b"/a", Kind.FILE, size=3), Member(b"/a", Kind.SYMLINK, target=b"b")
LONG_MAP = [(number, 0) for number in range(20_000)]


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(packed((A_FILE, None, b"abc")).replace(b"/a\0", b"/b\0", 1), id="a header with another checksum"),
        pytest.param(forged(packed((A_LINK, None, b"")), size=512) + END, id="a link with data"),
        pytest.param(packed((Member(b"/" + b"a\0" * 60, Kind.FILE), None, b"")), id="a path with NUL"),
        pytest.param(packed((Member(b"/a", Kind.FILE, uid=10**20), None, b"")), id="an owner of 21 digits"),
        pytest.param(packed((A_FILE, LONG_MAP, b"")), id="a sparse file with a map of 100 kB"),
        pytest.param(
            forged(packed((A_FILE, [(0, 3)], b"abc")), size=4 * 512, at=1024) + END,
            id="a sparse file with less data than told",
        ),
    ],
)
def test_what_does_not_add_up_is_refused(archive: bytes) -> None:
    """A forged member is made on the host of a container, or hides the members after it."""
    with pytest.raises(BadArchive):
        list(unpacked(archive))


def test_attributes_that_end_in_zeros_are_refused() -> None:
    """The rest of the attributes has no length, so the same place is read for ever: a server's thread spins."""
    told = header(Member(b"/" + b"a" * 150, Kind.FILE))
    assert told[512:].startswith(b"161 path=/aaa")
    with pytest.raises(BadArchive, match="attributes"):
        list(unpacked(forged(told, size=512) + END))


def test_attributes_have_a_bound() -> None:
    """A header of a hostile container says how much memory the server takes."""
    told = forged(header(Member(b"/" + b"a" * 150, Kind.FILE)), size=1 << 30)
    asked: list[int] = []

    def read(size: int) -> bytes:
        asked.append(size)
        return told[:size]

    with pytest.raises(BadArchive, match="too long"):
        list(members(read))
    assert asked == [512]


def test_only_attributes_of_users_are_read() -> None:
    """`security.capability` from a container gives a program in the next one rights of root."""
    given_to = Member(b"/a", Kind.FILE, xattrs={b"security.capability": b"x", b"trusted.a": b"x", b"user.a": b"1"})
    [(member, _)] = unpacked(packed((given_to, None, b"")))
    assert member.xattrs == {b"user.a": b"1"}


def test_times_as_gnu_tar_writes_them() -> None:
    """GNU tar leaves out zeros at the end of a time: .5 is half a second, and no 5 ns."""
    for written, ns in (("1.5", 1_500_000_000), ("-1.25", -1_250_000_000), ("7", 7_000_000_000)):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            folder = tarfile.TarInfo("/x")
            folder.type, folder.pax_headers = tarfile.DIRTYPE, {"mtime": written, "path": "/x"}
            tar.addfile(folder)
        ((found, _),) = unpacked(stream.getvalue())
        assert found.mtime_ns == ns
