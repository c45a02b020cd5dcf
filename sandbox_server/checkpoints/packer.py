"""Packs the changed files of a container from the host of the engine; the counterpart of capture.bash.

Both produce the same members and lists. Here a dozen files take some milliseconds, and nothing is started in the
container. Its processes may change any file during the work.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

from sandbox_server.checkpoints.archive import END, KINDS, Kind, Member, header, padding
from sandbox_server.checkpoints.checkpoint import LeftOut
from sandbox_server.sandbox.tree import Folders, HostAccessFailed, Tree

_PATHS = 4000  # changed paths of one checkpoint; each takes some 50 us and holds the interpreter
_NAMES = 50_000  # names in the changed folders
_LONGEST = 4000  # bytes of a path, as a program can open it
_EXTENTS = 1000  # data ranges of one sparse file
_PIECE = 1 << 20  # bytes read at once
_ENOUGH = 4 << 20  # bytes per piece of the archive
_SHM = b"/dev/shm"


class Packer:
    """Packs one container."""

    def __init__(self, tree: Tree) -> None:
        """List the changed paths. Raises HostAccessFailed: too many for this method, or they change too fast."""
        self._tree = tree
        try:
            folders, others = _changed(tree.upper, b"", tree.mounts)
            shm_folders, shm_others = _changed(tree.shm, _SHM, frozenset()) if tree.shm else ([], [])
            self._folders = [*folders, *shm_folders]
            self._others = [*others, *shm_others]
            self.contents = b"".join(self._contents())
            self.left_out = LeftOut(tree.programs(), tree.volumes())
        except OSError as error:
            raise HostAccessFailed(f"a folder or a sparse file cannot be read: {error}") from error
        self.folders = b"".join(path + b"\0" for path in self._folders)
        self.done = False
        """The last piece has been returned."""
        self._seen: dict[tuple[int, int], bytes] = {}
        """(device, inode) of files with several names -> the first name."""

    def pieces(self) -> Generator[bytearray, None, None]:
        """Yield the archive; the caller owns each piece."""
        held = bytearray()
        for path in (*self._folders, *self._others):
            # (files that have vanished meanwhile are skipped)
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                for data in self._member(path):
                    held += data
                    if len(held) >= _ENOUGH:
                        yield held
                        held = bytearray()
        self.done = True
        held += END
        yield held

    def _within(self, path: bytes) -> tuple[Folders, bytes]:
        if self._tree.shm is not None and (path == _SHM or path.startswith(_SHM + b"/")):
            return self._tree.shm, path.removeprefix(_SHM) or b"/"
        return self._tree.files, path

    def _contents(self) -> Iterator[bytes]:
        count = 0
        for path in self._folders:
            files, below = self._within(path)
            with suppress(FileNotFoundError, NotADirectoryError):
                for name, entry in files.entries(below):
                    yield b"%b/%b%b\0" % (path.rstrip(b"/"), name, b"/" if entry.is_dir(follow_symlinks=False) else b"")
                    count += 1
                    if count > _NAMES:
                        raise HostAccessFailed(f"more than {_NAMES} names in the changed folders")

    def _member(self, path: bytes) -> Iterator[bytes]:
        files, below = self._within(path)
        seen = files.stat(below)
        kind = KINDS.get(stat.S_IFMT(seen.st_mode))
        if kind is None:
            return
        inode, linked = (seen.st_dev, seen.st_ino), kind is not Kind.FOLDER and seen.st_nlink > 1
        if linked and (first := self._seen.get(inode)):
            yield header(_described(path, seen, Kind.LINK, target=first))
            return
        packed: Iterator[bytes]
        if kind is Kind.FILE:
            packed = self._file(path, files.read(below))
        elif kind is Kind.SYMLINK:
            above, name = files.place(below)
            packed = iter([header(_described(path, seen, kind, target=os.fsencode(os.readlink(name, dir_fd=above))))])
        else:
            xattrs = _xattrs(files.open(below)) if kind is Kind.FOLDER else {}
            packed = iter([header(_described(path, seen, kind, xattrs=xattrs))])
        if linked:  # only now: if the file has vanished, no other name can become a link to it
            self._seen[inode] = path
        yield from packed

    def _file(self, path: bytes, fd: int) -> Iterator[bytes]:
        try:
            seen = os.fstat(fd)
            extents = _extents(fd, seen.st_size) if _has_holes(seen) else None
            member = _described(path, seen, Kind.FILE, xattrs=_xattrs(fd))
            yield header(member, extents)
            total = 0
            for begin, size in [(0, seen.st_size)] if extents is None else extents:
                yield from _read(fd, begin, size)
                total += size
            yield padding(total)
        finally:
            os.close(fd)


def _changed(root: Folders, at: bytes, mounts: frozenset[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Folders and other paths in the upper folder of an overlay, without whiteouts; all begin with `at`."""
    folders, others, waiting = [at or b"/"], list[bytes](), [b""]
    while waiting:
        folder = waiting.pop()
        for name, entry in root.entries(folder or b"/"):
            below = folder + b"/" + name
            path = at + below
            if len(path) > _LONGEST or len(folders) + len(others) > _PATHS:
                raise HostAccessFailed(f"more than {_PATHS} changed paths, or one of more than {_LONGEST} bytes")
            if entry.is_dir(follow_symlinks=False):
                waiting.append(below)
                if path not in mounts:
                    folders.append(path)
            elif path not in mounts:
                seen = entry.stat(follow_symlinks=False)
                if stat.S_IFMT(seen.st_mode) not in (stat.S_IFCHR, stat.S_IFSOCK):
                    others.append(path)
                if stat.S_ISREG(seen.st_mode) and _has_holes(seen):
                    _count_extents(root, below)
    # sorted, so that checkpoints share blocks
    return sorted(folders), sorted(others)


def _described(
    path: bytes, seen: os.stat_result, kind: Kind, *, target: bytes = b"", xattrs: dict[bytes, bytes] | None = None
) -> Member:
    return Member(
        path=path,
        kind=kind,
        mode=stat.S_IMODE(seen.st_mode),
        uid=seen.st_uid,
        gid=seen.st_gid,
        mtime_ns=seen.st_mtime_ns,
        size=seen.st_size,
        target=target,
        xattrs=xattrs or {},
    )


def _xattrs(fd: int) -> dict[bytes, bytes]:
    found = {}
    with suppress(OSError):  # the file system has no attributes, or one was removed meanwhile
        for name in os.listxattr(fd):
            if name.startswith("user."):
                found[os.fsencode(name)] = os.getxattr(fd, name)
    return found


def _has_holes(seen: os.stat_result) -> bool:
    return seen.st_blocks * 512 < seen.st_size


def _count_extents(files: Folders, path: bytes) -> None:
    """Check the number of a file's data ranges. Raises HostAccessFailed: too many.

    They are not stored as one range instead: with its holes as bytes, a file could take any size in each copy.
    """
    with suppress(FileNotFoundError):
        fd = files.read(path)
        try:
            _extents(fd, os.fstat(fd).st_size)
        except OverflowError as error:
            raise HostAccessFailed(f"{path!r} has {error}") from error
        finally:
            os.close(fd)


def _extents(fd: int, size: int) -> list[tuple[int, int]]:
    """(offset, size) of each data range of a file, then (size of the file, 0). Raises OverflowError: too many."""
    extents, at = list[tuple[int, int]](), 0
    try:
        while at < size:
            if len(extents) == _EXTENTS:
                raise OverflowError(f"more than {_EXTENTS} parts between holes")
            begin = os.lseek(fd, at, os.SEEK_DATA)
            at = min(size, os.lseek(fd, begin, os.SEEK_HOLE))
            extents.append((begin, at - begin))
    except OSError as error:
        if error.errno != errno.ENXIO:  # a hole at the end
            raise
    return [*extents, (size, 0)]


def _read(fd: int, begin: int, size: int) -> Iterator[bytes]:
    """Read exactly this many bytes, with NUL bytes where the file has become shorter."""
    end = begin + size
    while begin < end:
        piece = os.pread(fd, min(_PIECE, end - begin), begin) or bytes(min(_PIECE, end - begin))
        yield piece
        begin += len(piece)
