"""The files of a running container, accessed from the host of its engine without a process in the container.

Everything in it is hostile and may change at any time: no symbolic link is followed, no mount is entered, and only
folders and regular files are opened. Paths are absolute, as bytes. All functions block: use them on a thread.
"""

import os
import re
import stat
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 40  # folders above a path
_OPEN = 2 * _DEEPEST + 2  # folders kept open: all parents of two paths
_STAT_BYTES = 4096  # bytes of /proc/PID/stat
_EVERY_ID = ["0", "0", "4294967295"]
_OVERLAY = Path("/sys/module/overlay/parameters")
_ENGINES = (b"proc", b"sys", b"dev", b"run", b"etc")  # folders mounted there are the engine's, in every container
_SPLIT = ("redirect_dir", "index")  # with either option, an upper folder alone does not name all changed paths


class HostAccessFailed(Exception):
    """The files of the container cannot be accessed from here, or not reliably."""


def plain_overlay() -> bool:
    """Whether the kernel's defaults put every changed path into an overlay's upper folder."""
    try:
        return all((_OVERLAY / name).read_text().strip() == "N" for name in _SPLIT)
    except OSError:
        return False


class Folders:
    """The folders on one file system, below an open one."""

    def __init__(self, root: int) -> None:
        """`root`: its descriptor, which this object closes."""
        self._root = root
        self._device = os.fstat(root).st_dev
        self._open: OrderedDict[bytes, int] = OrderedDict()

    def open(self, path: bytes) -> int:
        """The descriptor of the folder at `path`. Do not close it; it stays open until two others have been opened.

        Raises OSError: there is none, or it is behind a symbolic link, on another file system, or too deep.
        """
        if (known := self._open.get(path)) is not None:
            self._open.move_to_end(path)
            return known
        if not path.strip(b"/"):
            return self._root
        above, _, name = path.rpartition(b"/")
        if name in (b"", b".", b"..") or path.count(b"/") > _DEEPEST:
            raise NotADirectoryError(f"{path!r} is not the path of a folder, or too deep")
        fd = os.open(name, _FOLDER, dir_fd=self.open(above))
        if os.fstat(fd).st_dev != self._device:
            os.close(fd)
            raise OSError(f"{path!r} is on another file system")
        self._open[path] = fd
        if len(self._open) > _OPEN:
            os.close(self._open.popitem(last=False)[1])
        return fd

    def place(self, path: bytes) -> tuple[int, bytes]:
        """Descriptor of the parent folder of a path, as from `open`, and the last name of the path."""
        above, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            raise IsADirectoryError(f"{path!r} does not end in a name")
        return self.open(above), name

    def entries(self, path: bytes) -> Iterator[tuple[bytes, "os.DirEntry[str]"]]:
        """The names in a folder. Raises as `open`."""
        with os.scandir(self.open(path)) as found:
            for entry in found:
                yield os.fsencode(entry.name), entry

    def stat(self, path: bytes) -> os.stat_result:
        """The status of the path itself, links not followed. Raises as `open`."""
        if path == b"/":
            return os.fstat(self._root)
        above, name = self.place(path)
        return os.stat(name, dir_fd=above, follow_symlinks=False)

    def read(self, path: bytes) -> int:
        """Open a regular file; the caller closes the descriptor. Raises as `open`."""
        above, name = self.place(path)
        fd = os.open(name, _READ, dir_fd=above)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{path!r} is not a regular file")
        return fd

    def load(self, name: bytes, most: int) -> bytes:
        """The content of a file in the root folder. Raises as `open`. OverflowError: it has more than `most` bytes."""
        with open(self.read(b"/" + name), "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise OverflowError(f"{name!r} has more than {most} bytes")
        return data

    def store(self, name: bytes, data: bytes) -> None:
        """Write a file in the root folder; replaces an existing one. Raises as `open`."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._root)
        with open(self.make(b"/" + name), "wb") as file:
            file.write(data)

    def make(self, path: bytes) -> int:
        """Create a regular file with access for root alone; the caller closes the descriptor. Raises as `open`; if it
        exists.
        """
        above, name = self.place(path)
        return os.open(name, _MAKE, 0o600, dir_fd=above)

    def remove(self, path: bytes) -> None:
        """Remove a path and everything below it. Raises OSError: there is a mount in it."""
        above, name = self.place(path)
        if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=above)
            return
        below = [path]
        for folder in below:  # grows
            for inner, entry in list(self.entries(folder)):
                if entry.is_dir(follow_symlinks=False):
                    below.append(folder + b"/" + inner)
                else:
                    os.unlink(inner, dir_fd=self.open(folder))
        for folder in reversed(below):
            if (known := self._open.pop(folder, None)) is not None:
                os.close(known)
            above, name = self.place(folder)
            os.rmdir(name, dir_fd=above)

    def close(self) -> None:
        """Close all descriptors."""
        while self._open:
            os.close(self._open.popitem()[1])
        os.close(self._root)


class Tree:
    """The files of one container while it runs. Call `close` at the end."""

    def __init__(self, pid: int, container_id: str) -> None:
        """`pid`: the host's number of the container's first process. Raises HostAccessFailed."""
        self._opened: list[Folders] = []
        try:
            self._process = os.open(f"/proc/{pid}", _FOLDER)
        except OSError as error:
            raise HostAccessFailed(f"process {pid}: {error}") from error
        try:
            self._open(container_id)
        except (OSError, ValueError, LookupError) as error:
            self.close()
            raise HostAccessFailed(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _open(self, container_id: str) -> None:
        # A descriptor of /proc/PID stays with this process. If it has ended and its number is reused, reads fail.
        if container_id not in self._proc("cgroup"):
            raise HostAccessFailed("the process is not the container's")
        if self._proc("uid_map").split() != _EVERY_ID or self._proc("gid_map").split() != _EVERY_ID:
            raise HostAccessFailed("the container has other users than this host")
        mounts = [line.partition(" - ") for line in self._proc("mountinfo").splitlines()]
        points = {_unescaped(before.split(" ")[4]): after for before, _, after in mounts}
        kind, _, options = points[b"/"].split(" ", 2)
        settings = options.rpartition(" ")[2].split(",")
        if kind != "overlay" or not plain_overlay() or any(f"{name}=on" in settings for name in _SPLIT):
            raise HostAccessFailed("the container's root is not a plain overlay")
        upper = next(word.removeprefix("upperdir=") for word in settings if word.startswith("upperdir="))
        if not upper.startswith("/"):
            raise HostAccessFailed("the engine does not say where the container's files are")
        self.mounts = frozenset(points) - {b"/", b"/dev/shm"}
        """Paths that the engine mounts; they are not the container's own."""
        self.files = self._folders(os.open("root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._process))
        """The whole tree as the container sees it, without mounts."""
        self.upper = self._folders(os.open(os.fsencode(upper), _FOLDER))
        """The changed files; for reading of paths, types and holes only."""
        self.shm = self._folders(self._below("dev", "shm")) if b"/dev/shm" in points else None
        self.own = self._folders(self._below("run", "sandbox"))
        """/run/sandbox, which is not part of a session."""

    def _folders(self, root: int) -> Folders:
        self._opened.append(folders := Folders(root))
        return folders

    def _below(self, *names: str) -> int:
        fd = os.open("root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._process)
        for name in names:
            try:
                inner = os.open(name, _FOLDER, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return fd

    def _proc(self, name: str) -> str:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._process)
        with open(fd, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()

    def volumes(self) -> list[str]:
        """Paths of the volumes that the image declares. Raises OSError."""
        others = (path for path in self.mounts if path.split(b"/")[1] not in _ENGINES)
        return [os.fsdecode(path) for path in others if stat.S_ISDIR(self.files.stat(path).st_mode)]

    def programs(self) -> list[str]:
        """Names of the running programs: descendants of the init, without the session's shell and its helpers. Raises
        OSError.
        """
        proc = self._below("proc")
        try:
            parents, names = _processes(proc)
        finally:
            os.close(proc)
        main = min((pid for pid, parent in parents.items() if parent == 1), default=0)  # boot.bash
        running = []
        for pid, parent in parents.items():
            keeper = parent == main or (parents.get(parent) == main and names[parent] == "script")
            if pid in (1, main) or keeper:
                continue
            seen = set()
            while parent not in (0, 1) and parent not in seen:
                seen.add(parent)
                parent = parents.get(parent, 0)
            if parent == 1:
                running.append(names[pid])
        return running

    def close(self) -> None:
        """Close all descriptors."""
        for folders in self._opened:
            folders.close()
        self._opened.clear()
        os.close(self._process)


def _processes(proc: int) -> tuple[dict[int, int], dict[int, str]]:
    """(parent, name) of each live process, by its id in the container."""
    parents, names = {}, {}
    for entry in os.listdir(proc):
        if not entry.isdecimal():
            continue
        with suppress(OSError, ValueError):  # it ended meanwhile
            fd = os.open(f"{entry}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
            try:
                line = os.read(fd, _STAT_BYTES).decode("utf-8", "replace")
            finally:
                os.close(fd)
            name, _, rest = line.partition("(")[2].rpartition(") ")
            state, parent = rest.split(" ", 2)[:2]
            if state not in "XZ":
                parents[int(entry)], names[int(entry)] = int(parent), name
    return parents, names


def _unescaped(path: str) -> bytes:
    """Decode a path of mountinfo."""
    return re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), path.encode("utf-8", "surrogateescape"))
