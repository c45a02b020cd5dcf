"""The tar archives of checkpoints: POSIX headers, sparse files in the format of GNU tar 1.0, and nothing else.

Names and attributes are bytes; times are in nanoseconds. An archive that is read may come from a hostile container, so
its fields have limits and any other format is refused. GNU tar reads archives written here, and this module reads those
that GNU tar writes.
"""

import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

RECORD = 512
_NAME, _LINK = 100, 100  # bytes of a header's fields
_OCTAL_8, _OCTAL_12 = 8**7 - 1, 8**11 - 1  # largest numbers of fields of 8 and 12 bytes
_EXTENDED_BYTES = 2 << 20  # bytes of the attributes of one member
_MAP_BYTES = 64 << 10  # bytes of the map of one sparse file
_PIECE = 1 << 20
_NS = 10**9
_XATTR = b"SCHILY.xattr."


class BadArchive(ValueError):
    """The archive is truncated, or is not in the supported format."""


class Kind(StrEnum):
    """Type of a member, as in its header."""

    FILE = "0"
    LINK = "1"
    """A hard link to an earlier member."""
    SYMLINK = "2"
    FOLDER = "5"
    FIFO = "6"


KINDS = {stat.S_IFREG: Kind.FILE, stat.S_IFLNK: Kind.SYMLINK, stat.S_IFDIR: Kind.FOLDER, stat.S_IFIFO: Kind.FIFO}


@dataclass(frozen=True, slots=True)
class Member:
    """One path of an archive."""

    path: bytes
    """Absolute."""
    kind: Kind
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    size: int = 0
    """Size of a file in bytes, holes included."""
    target: bytes = b""
    """Target of a LINK or SYMLINK."""
    xattrs: Mapping[bytes, bytes] = field(default_factory=dict)
    content: Iterable[tuple[int, bytes]] = ()
    """Data of a file: (offset, bytes) of each piece. Exhaust it before reading the next member."""


END = bytes(2 * RECORD)


def header(member: Member, extents: Sequence[tuple[int, int]] | None = None) -> bytes:
    """The header and map that precede the data of a member. `extents`: (offset, size) of each data range of a sparse
    file.
    """
    records: dict[bytes, bytes] = {}
    size = member.size if member.kind is Kind.FILE else 0
    sparse_map = b""
    if extents is not None:
        numbers = [len(extents), *(number for extent in extents for number in extent)]
        sparse_map = _padded(b"".join(b"%d\n" % number for number in numbers))
        records |= {b"GNU.sparse.major": b"1", b"GNU.sparse.minor": b"0", b"GNU.sparse.name": member.path}
        records[b"GNU.sparse.realsize"] = b"%d" % size
        size = len(sparse_map) + sum(length for _, length in extents)
    if len(member.path) > _NAME:
        records[b"path"] = member.path
    if len(member.target) > _LINK:
        records[b"linkpath"] = member.target
    seconds, nanoseconds = divmod(member.mtime_ns, _NS)
    if nanoseconds or not 0 <= seconds <= _OCTAL_12:
        records[b"mtime"] = _time(member.mtime_ns)
    for name, number, most in (
        (b"uid", member.uid, _OCTAL_8),
        (b"gid", member.gid, _OCTAL_8),
        (b"size", size, _OCTAL_12),
    ):
        if number > most:
            records[name] = b"%d" % number
    records |= {_XATTR + _escaped(name): value for name, value in member.xattrs.items()}
    extended = b""
    if records:
        data = b"".join(_record(name, value) for name, value in records.items())
        extended = _block(b"x", b"PaxHeaders", 0o644, 0, 0, len(data), 0, b"") + _padded(data)
    return (
        extended
        + _block(
            member.kind.encode(),
            member.path[:_NAME],
            member.mode,
            member.uid if member.uid <= _OCTAL_8 else 0,
            member.gid if member.gid <= _OCTAL_8 else 0,
            size if size <= _OCTAL_12 else 0,
            seconds if 0 <= seconds <= _OCTAL_12 else 0,
            member.target[:_LINK],
        )
        + sparse_map
    )


def padding(size: int) -> bytes:
    """The padding after `size` bytes of data."""
    return bytes(-size % RECORD)


def members(read: Callable[[int], bytes]) -> Iterator[Member]:
    """Yield the members of an archive. `read(n)` returns its next n bytes, or fewer at the end.

    Raises BadArchive.
    """
    while True:
        extended: dict[bytes, bytes] = {}
        block = _exactly(read, RECORD)
        if not any(block):
            return
        if _kind(block) == b"x":
            extended = dict(_records(_padded_data(read, _number(block[124:136]), _EXTENDED_BYTES)))
            block = _exactly(read, RECORD)
        yield from _member(read, block, extended)


def _member(read: Callable[[int], bytes], block: bytes, extended: Mapping[bytes, bytes]) -> Iterator[Member]:
    try:
        kind = Kind(_kind(block).decode("latin-1").replace("\0", "0"))
    except ValueError:
        raise BadArchive(f"a member of type {_kind(block)!r}") from None
    if any(name.startswith(b"GNU.sparse.") for name in extended) and extended.get(b"GNU.sparse.major") != b"1":
        raise BadArchive("a sparse file of an unknown form")
    prefix = block[345:500].rstrip(b"\0")
    name = (prefix + b"/" if prefix else b"") + block[:100].partition(b"\0")[0]
    stored = _decimal(extended[b"size"]) if b"size" in extended else _number(block[124:136])
    sparse = b"GNU.sparse.realsize" in extended
    path = extended.get(b"GNU.sparse.name") or extended.get(b"path") or name
    if not path.startswith(b"/") or b"\0" in path:
        raise BadArchive(f"the path {path[:100]!r}")
    if kind is not Kind.FILE and (stored or sparse):
        raise BadArchive("data of something other than a file")
    yield Member(
        path=b"/" + path.strip(b"/"),
        kind=kind,
        mode=_number(block[100:108]) & 0o7777,
        uid=_decimal(extended[b"uid"]) if b"uid" in extended else _number(block[108:116]),
        gid=_decimal(extended[b"gid"]) if b"gid" in extended else _number(block[116:124]),
        mtime_ns=_nanoseconds(extended[b"mtime"]) if b"mtime" in extended else _number(block[136:148]) * _NS,
        size=_decimal(extended[b"GNU.sparse.realsize"]) if sparse else stored,
        target=extended.get(b"linkpath") or block[157:257].partition(b"\0")[0],
        xattrs={
            _unescaped(name.removeprefix(_XATTR)): value
            for name, value in extended.items()
            if name.startswith(_XATTR + b"user.")
        },
        content=_sparse(read, stored) if sparse else _plain(read, stored),
    )


def _plain(read: Callable[[int], bytes], size: int) -> Iterator[tuple[int, bytes]]:
    yield from _pieces(read, 0, size)
    _exactly(read, -size % RECORD)


def _sparse(read: Callable[[int], bytes], stored: int) -> Iterator[tuple[int, bytes]]:
    text, words, wanted = b"", list[bytes](), 1
    while len(words) < wanted:  # the number of ranges, then offset and size of each
        if len(text) > _MAP_BYTES:
            raise BadArchive("the map of a sparse file is too long")
        text += _exactly(read, RECORD)
        words = text.split(b"\n")[:-1]
        if words:
            wanted = 1 + 2 * _decimal(words[0])
    numbers = [_decimal(word) for word in words[:wanted]]
    for begin, size in zip(numbers[1::2], numbers[2::2], strict=True):
        yield from _pieces(read, begin, size)
    used = len(text) + sum(numbers[2::2])
    if used != stored:
        raise BadArchive("the sizes of a sparse file")
    _exactly(read, -stored % RECORD)


def _pieces(read: Callable[[int], bytes], begin: int, size: int) -> Iterator[tuple[int, bytes]]:
    end = begin + size
    while begin < end:
        piece = _exactly(read, min(_PIECE, end - begin))
        yield begin, piece
        begin += len(piece)


def _block(kind: bytes, name: bytes, mode: int, uid: int, gid: int, size: int, mtime: int, link: bytes) -> bytes:
    before = b"%b%07o\0%07o\0%07o\0%011o\0%011o\0" % (name.ljust(_NAME, b"\0"), mode, uid, gid, size, mtime)
    after = kind + link.ljust(_LINK, b"\0") + b"ustar\x0000"
    total = sum(before) + 8 * ord(" ") + sum(after)
    return (before + b"%06o\0 " % total + after).ljust(RECORD, b"\0")


def _kind(block: bytes) -> bytes:
    if block[257:263] != b"ustar\0" or _number(block[148:156]) != sum(block[:148]) + 8 * ord(" ") + sum(block[156:]):
        raise BadArchive("no POSIX header where one should be")
    return block[156:157]


def _record(name: bytes, value: bytes) -> bytes:
    rest = b" %b=%b\n" % (name, value)
    size = len(rest) + len(b"%d" % len(rest))
    size = len(rest) + len(b"%d" % size)
    return b"%d%b" % (size, rest)


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 20)
        size = _decimal(data[at:space]) if space > at else 0
        name, equals, value = data[space + 1 : at + size].partition(b"=")
        if not size or not equals or not value.endswith(b"\n") or at + size > len(data):
            raise BadArchive("the attributes of a member")
        yield name, value[:-1]
        at += size


def _escaped(name: bytes) -> bytes:
    """The name of an attribute as GNU tar writes it, with `=` escaped because that ends the name of a record."""
    return name.replace(b"%", b"%25").replace(b"=", b"%3D")


def _unescaped(name: bytes) -> bytes:
    return name.replace(b"%3D", b"=").replace(b"%25", b"%")


def _padded(data: bytes) -> bytes:
    return data + padding(len(data))


def _padded_data(read: Callable[[int], bytes], size: int, most: int) -> bytes:
    if size > most:
        raise BadArchive("the attributes of a member are too long")
    return _exactly(read, size + -size % RECORD)[:size]


def _exactly(read: Callable[[int], bytes], size: int) -> bytes:
    data = read(size)
    if len(data) != size:
        raise BadArchive("the archive broke off")
    return data


def _number(field: bytes) -> int:
    """Parse a numeric header field."""
    if field[0] & 0x80:  # GNU's base-256 format for large numbers
        raise BadArchive("a field is not an octal number")
    try:
        return int(field.strip(b"\0 ") or b"0", 8)
    except ValueError:
        raise BadArchive("a field is not an octal number") from None


def _decimal(word: bytes) -> int:
    if not word.isdigit() or len(word) > 20:
        raise BadArchive("a field is not a decimal number")
    return int(word)


def _time(ns: int) -> bytes:
    seconds, rest = divmod(abs(ns), _NS)
    return b"%b%d.%09d" % (b"-" if ns < 0 else b"", seconds, rest)


def _nanoseconds(word: bytes) -> int:
    sign = -1 if word.startswith(b"-") else 1
    seconds, _, rest = word.removeprefix(b"-").partition(b".")
    return sign * (_decimal(seconds) * _NS + _decimal(rest[:9].ljust(9, b"0")))
