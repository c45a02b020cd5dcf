"""Restores the files of a checkpoint in a fresh container from the host of the engine; the counterpart of restore.bash.

The archive comes from a hostile container: no link is followed, no mount is entered, and only folders, files, links and
FIFOs are created. The container has not been used by anyone yet.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass

from sandbox_server.checkpoints.archive import Kind, Member
from sandbox_server.errors import SandboxDiskFull
from sandbox_server.sandbox.tree import Folders, HostAccessFailed, Tree

_SHM = b"/dev/shm"
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)


NO_ROOM = "the engine's disk has no room for the restored files; free some, then send the request again"


class HostRestoreFailed(Exception):
    """The checkpoint cannot be restored from the host. `containerside` still can, whatever was already written."""


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The contents of the changed folders; anything else in them was deleted."""

    folders: tuple[bytes, ...]
    """Outer folders first."""
    kept: Mapping[bytes, Set[bytes]]
    """Folder -> names; those of folders end with a slash."""

    @classmethod
    def of(cls, folders: bytes, contents: bytes) -> "FolderContents":
        """Parse the lists of a checkpoint."""
        paths = sorted(folders.split(b"\0")[:-1])
        kept: dict[bytes, set[bytes]] = {path: set() for path in paths}
        for path in contents.split(b"\0")[:-1]:
            slash = b"/" if path.endswith(b"/") else b""
            above, _, name = path.removesuffix(b"/").rpartition(b"/")
            if (names := kept.get(above or b"/")) is not None:
                names.add(name + slash)
        return cls(tuple(paths), kept)


def unpack(tree: Tree, listed: FolderContents, members: Iterable[Member]) -> None:
    """Bring the files to the state of the checkpoint.

    Raises:
        HostRestoreFailed. SandboxDiskFull: the engine's disk is full. The errors of `members`.
    """
    try:
        _remove(tree, listed)
        times = []
        for member in members:
            if member.path == _SHM or member.path.startswith(_SHM + b"/"):
                # (the memory of its files would be counted as the memory of this server)
                if member.path != _SHM or tree.shm is None:
                    raise HostRestoreFailed("there are files in /dev/shm")
                times.append((tree.shm, _placed(tree.shm, member, b"/")))
            else:
                times.append((tree.files, _placed(tree.files, member, member.path)))
        for files, placed in times:
            if placed is not None:
                path, mtime_ns = placed
                os.utime(files.open(path), ns=(mtime_ns, mtime_ns))
    except (OSError, OverflowError, HostAccessFailed) as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise SandboxDiskFull(NO_ROOM) from error
        raise HostRestoreFailed(str(error)) from error


def _remove(tree: Tree, listed: FolderContents) -> None:
    for path in listed.folders:
        if path == _SHM or path.startswith(_SHM + b"/"):
            continue
        surplus = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for name, entry in tree.files.entries(path):
                told = name + b"/" if entry.is_dir(follow_symlinks=False) else name
                if told not in listed.kept[path]:
                    surplus.append(path.rstrip(b"/") + b"/" + name)
        for inner in surplus:
            tree.files.remove(inner)


def _placed(files: Folders, member: Member, path: bytes) -> tuple[bytes, int] | None:
    """Create one member and replace what is there. For a folder, return its path and the time to set later."""
    if member.kind is Kind.FOLDER:
        fd = _folder(files, path)
        _owned(fd, member)
        _attributed(fd, member)
        return path, member.mtime_ns
    if member.kind is Kind.FILE:
        try:
            fd = files.make(path)
        except FileExistsError:
            _gone(files, path)
            fd = files.make(path)
        try:
            _filled(fd, member)
            _owned(fd, member)
            os.utime(fd, ns=(member.mtime_ns, member.mtime_ns))
        finally:
            os.close(fd)
        return None
    above, name = _gone(files, path)
    if member.kind is Kind.LINK:
        source, first = files.place(member.target)
        os.link(first, name, src_dir_fd=source, dst_dir_fd=above, follow_symlinks=False)
    else:
        if member.kind is Kind.SYMLINK:
            os.symlink(member.target, name, dir_fd=above)
            os.chown(name, member.uid, member.gid, dir_fd=above, follow_symlinks=False)
        else:
            os.mkfifo(name, 0o600, dir_fd=above)
            fd = os.open(name, _PATH, dir_fd=above)
            try:
                os.chown(f"/proc/self/fd/{fd}", member.uid, member.gid)
                os.chmod(f"/proc/self/fd/{fd}", member.mode)
            finally:
                os.close(fd)
        os.utime(name, ns=(member.mtime_ns, member.mtime_ns), dir_fd=above, follow_symlinks=False)
    return None


def _gone(files: Folders, path: bytes) -> tuple[int, bytes]:
    """Remove a path that is not a folder; return its folder's descriptor and its name."""
    above, name = files.place(path)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=above)
    return above, name


def _folder(files: Folders, path: bytes) -> int:
    try:
        return files.open(path)
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        above, name = files.place(path)
        os.unlink(name, dir_fd=above)
    above, name = files.place(path)
    os.mkdir(name, 0o700, dir_fd=above)
    return files.open(path)


def _owned(fd: int, member: Member) -> None:
    os.fchown(fd, member.uid, member.gid)
    os.fchmod(fd, member.mode)  # after the owner, because a change of owner clears bits


def _attributed(fd: int, member: Member) -> None:
    have = {os.fsencode(name) for name in os.listxattr(fd) if name.startswith("user.")}
    for name in have - set(member.xattrs):
        os.removexattr(fd, name)
    for name, value in member.xattrs.items():
        os.setxattr(fd, name, value)


def _filled(fd: int, member: Member) -> None:
    end = 0
    for begin, data in member.content:
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, begin)
            begin, view = begin + written, view[written:]
        end = begin
    if end != member.size:
        os.ftruncate(fd, member.size)
    for name, value in member.xattrs.items():
        os.setxattr(fd, name, value)
