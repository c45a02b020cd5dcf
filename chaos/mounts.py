"""Small file systems of our own, which may be filled to the last byte."""

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.processes import ChaosFailed, run

_STEP = 1 << 20


@contextmanager
def tmpfs(folder: Path, size_mb: int) -> Iterator[Path]:
    """Mount a file system in memory at `folder`; at the end unmount it and everything mounted below it."""
    folder.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size_mb}m,mode=0755", "chaos", folder)
    try:
        yield folder
    finally:
        unmount_below(folder)


def mounts_below(folder: Path) -> list[str]:
    """Mount points at and below `folder`, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    below = [point for point in points if point == str(folder) or point.startswith(f"{folder}/")]
    return sorted(below, key=len, reverse=True)


def unmount_below(folder: Path) -> None:
    """Unmount them all; one in use disappears with its last user."""
    for point in mounts_below(folder):
        run("umount", "-l", point, check=False)


class Filler:
    """A file that takes the rest of a file system."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "filler"

    def fill(self) -> int:
        """Write until nothing more fits; return the number of bytes. Raises ChaosFailed if there is still room."""
        with self._path.open("wb", buffering=0) as stream:
            for step in (_STEP, 4096, 1):
                self._take(stream.fileno(), bytes(step))
        room = os.statvfs(self._path)
        if room.f_bavail:
            raise ChaosFailed(f"{self._path.parent} still has {room.f_bavail} free blocks")
        return self._path.stat().st_size

    def empty(self) -> None:
        """Free the space."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    @staticmethod
    def _take(file: int, piece: bytes) -> None:
        try:
            while os.write(file, piece) == len(piece):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
