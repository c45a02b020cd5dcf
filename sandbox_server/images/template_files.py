"""Rewrites the archive that a client uploaded for a COPY step: sets names in the image, owner and mode. Pure.

The archive is hostile. It is refused if it has names outside of it, members at or below one of its links, devices, hard
links, or more bytes than allowed. A link may have any target, as at E2B: it is copied, not followed, and a RUN step
could create it too.
"""

import functools
import gzip
import io
import posixpath
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, cast

from sandbox_server.errors import MalformedRequest

_MOST_MEMBERS = 50_000
_LONGEST = 4096  # PATH_MAX of Linux
_MEMBER_BYTES = 1536  # of each member: header and padding; longer names count as contents
_WORD = re.compile(r"(\*\*/?|\*|\?|\[[^\]]*\])")


@dataclass(frozen=True, slots=True)
class Copy:
    """A COPY with all names resolved."""

    source: str
    """Path or glob in the archive."""
    target: str
    """Absolute path in the image."""
    into: bool
    """Whether `target` is a folder, in which a file keeps its name."""
    uid: int
    gid: int
    mode: int | None = None
    """Permissions of all copied files and folders; None: as in the archive."""


class _Bounded:
    """Reads an archive, decompressed, up to a maximum: a header may announce gigabytes that compress well."""

    def __init__(self, archive: bytes, most_bytes: int, refusal: str) -> None:
        packed = io.BytesIO(archive)
        self._file: IO[bytes] = gzip.GzipFile(fileobj=packed) if archive[:2] == b"\x1f\x8b" else packed  # type: ignore[assignment]  # reads as one
        self._left = most_bytes
        self._refusal = refusal

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes. Raises MalformedRequest: the archive has more bytes than allowed."""
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise MalformedRequest(self._refusal)
        return data


def rewritten(archive: bytes, copy: Copy, *, most_bytes: int) -> IO[bytes]:
    """A tar archive, to be extracted at `/`, of the members that `copy` names; the caller closes it.

    `most_bytes` limits the size of its contents.

    Raises:
        MalformedRequest: the upload is not an archive, is hostile or too large, or has nothing under `copy.source`.
    """
    refusal = (
        f"COPY {copy.source}: the archive holds more than {most_bytes >> 20} MB or {_MOST_MEMBERS} files"
        " (SANDBOX_TEMPLATE_FILES_MB); copy less, or fetch it in a RUN"
    )
    if len(copy.source) > _LONGEST:
        raise MalformedRequest(f"COPY {copy.source[:200]}: no path is that long")
    source = _Bounded(archive, most_bytes + _MEMBER_BYTES * _MOST_MEMBERS, refusal)
    out = tempfile.TemporaryFile()  # noqa: SIM115 -- the caller closes it
    try:
        with (
            tarfile.open(fileobj=cast(IO[bytes], source), mode="r|") as given,
            tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as made,
        ):
            count = 0
            for member, target in _targets(given, copy, most_bytes, refusal):
                count += 1
                made.addfile(_owned(member, target, copy), given.extractfile(member) if member.isreg() else None)
        if not count:
            raise MalformedRequest(f"COPY {copy.source}: the uploaded archive has nothing of this name")
    except (tarfile.TarError, zlib.error, EOFError, OSError, UnicodeError) as error:
        out.close()
        raise MalformedRequest(f"COPY {copy.source}: the uploaded archive cannot be read: {error}") from None
    except BaseException:
        out.close()
        raise
    out.seek(0)
    return out


def _targets(
    given: tarfile.TarFile, copy: Copy, most_bytes: int, refusal: str
) -> Iterator[tuple[tarfile.TarInfo, str]]:
    total, links = 0, set[str]()
    for number, member in enumerate(given):
        total += member.size if member.isreg() else 0
        if total > most_bytes or number >= _MOST_MEMBERS:
            raise MalformedRequest(refusal)
        if (target := _target(_checked(member), copy, folder=member.isdir())) is not None:
            # keyed by the new name, because two folders of the archive may become one
            parts = target.split("/") if links else []
            if any("/".join(parts[:depth]) in links for depth in range(1, len(parts) + 1)):
                raise MalformedRequest(f"the archive's member {member.name[:200]!r} is at or below a link of it")
            if member.issym():
                links.add(target)
            yield member, target


def _checked(member: tarfile.TarInfo) -> str:
    """The member's normal name. Raises MalformedRequest."""
    if len(member.name) > _LONGEST:
        raise MalformedRequest(f"the archive's member {member.name[:200]!r} has a name that no file can have")
    name = posixpath.normpath(member.name)
    if name.startswith("/") or name.split("/")[0] == "..":
        raise MalformedRequest(f"the archive's member {member.name[:200]!r} is outside of it")
    if not (member.issym() or member.isreg() or member.isdir()):
        raise MalformedRequest(f"the archive's member {member.name[:200]!r} is not a file, folder or symbolic link")
    return name


def _target(name: str, copy: Copy, *, folder: bool) -> str | None:
    """Where a member of the archive goes in the image; None: it is not copied.

    If `copy` names a folder, its contents are copied without the folder's name.
    """
    source = posixpath.normpath(copy.source.lstrip("/") or ".")
    if source == ".":
        return posixpath.join(copy.target, name) if name != "." else copy.target
    wild = _WORD.search(source) is not None
    names_it = f"{name}/".startswith(f"{source}/")
    ends = _ends(source, name) if wild else names_it << len(source)
    place = -1
    for part in name.split("/"):
        place += len(part) + 1
        if not ends >> place & 1:
            continue
        rest = name[place + 1 :]
        if rest or folder:
            return posixpath.join(copy.target, rest) if rest else copy.target
        return posixpath.join(copy.target, part) if copy.into or wild else copy.target
    return None


def _ends(glob: str, name: str) -> int:
    """An integer whose bit n is set if a glob of `*`, `**`, `?` and `[...]` matches the first n characters of `name`.

    The client chooses both arguments. A regular expression would try every way to divide the name among the stars,
    which could take hours, in which no other thread runs. Here each word of the glob is one step for all characters.
    """
    places: dict[str, int] = {}
    for at, letter in enumerate(name):
        places[letter] = places.get(letter, 0) | 1 << at
    slashes = places.get("/", 0)
    others = ((1 << len(name)) - 1) ^ slashes
    ends = 1
    for word in filter(None, _WORD.split(glob)):
        later = (2 << len(name)) - (ends & -ends)  # all ends from the first one on
        if word == "**":
            ends = later
        elif word == "**/":
            ends |= (later & slashes) << 1
        elif word == "*":
            ends |= ((ends & others) + others) ^ others  # the sum carries each end through the letters behind it
        elif word == "?":
            ends = (ends & others) << 1
        elif word.startswith("[") and word.endswith("]"):
            ends = (ends & _any_of(word, places)) << 1
        else:
            for letter in word:
                ends = (ends & places.get(letter, 0)) << 1
        if not ends:
            return 0
    return ends


def _any_of(word: str, places: Mapping[str, int]) -> int:
    """The places, as bits, of the letters that `[...]` fits."""
    try:
        letters = re.compile(word)
    except re.error:
        return 0
    return functools.reduce(int.__or__, (bits for letter, bits in places.items() if letters.match(letter)), 0)


def _owned(member: tarfile.TarInfo, target: str, copy: Copy) -> tarfile.TarInfo:
    made = tarfile.TarInfo(target.lstrip("/") or ".")
    made.type, made.size, made.linkname = member.type, member.size, member.linkname
    made.mtime = member.mtime
    made.uid, made.gid = copy.uid, copy.gid
    made.mode = (member.mode & 0o7777) if copy.mode is None else copy.mode
    if made.type not in (tarfile.DIRTYPE, tarfile.SYMTYPE):
        made.type = tarfile.REGTYPE
    return made
