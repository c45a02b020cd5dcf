"""The folder of the mirrors: their names, locks and sizes, and the order in which they are removed.

    gitconfig, HOME of git       home/
    two locks for each mirror    locks/<key> (for users and removal), locks/<key>.fetch (for fetching)
    bare repositories            mirrors/<key>.git, `.new-*` and `.gone-*` while created and removed
    packs being made       work/

A mirror is created under another name, so it exists as a whole or not at all. Only what refs/keep and
refs/patched name may be used: git writes a ref only once everything it leads to is there.
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

_LONGEST_PAUSE_S = 0.25
_LEFT_OVER_S = 3600.0  # temporary files older than this have no owner


class MirrorFolder:
    """The folder of the mirrors. All methods but `locked` block: call them in a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.work = root / "work"
        self._locks = root / "locks"
        self._mirrors = root / "mirrors"

    def open(self) -> None:
        """Create the folder, and remove what killed processes have left."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)  # repositories may be private
        for folder in (self.home, self.work, self._locks, self._mirrors):
            folder.mkdir(exist_ok=True)
        left = [*self._mirrors.glob(".*"), *self.work.iterdir()]
        for path in left:
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _LEFT_OVER_S:
                    _remove(path)

    @staticmethod
    def key(address: str, *, history: bool) -> str:
        """The mirror's name. Snapshots and histories are kept apart: a shallow commit cuts every history through it."""
        digest = hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"{digest}-history" if history else digest

    def mirror(self, key: str) -> Path:
        """Path of the mirror, whether or not it exists."""
        return self._mirrors / f"{key}.git"

    @asynccontextmanager
    async def locked(self, key: str, *, exclusive: bool, timeout_s: float) -> AsyncIterator[int]:
        """Hold the mirror's lock, against other tasks and other processes; yields the open file.

        Raises:
            TimeoutError.

        """
        handle = os.open(self._locks / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        pause = 0.002
        try:
            async with asyncio.timeout(timeout_s):
                while not _try_lock(handle, kind):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
            yield handle
        finally:
            os.close(handle)

    def tidy(self, key: str) -> None:
        """Remove what a killed fetch has left in the mirror; call it under its fetch lock."""
        mirror = self.mirror(key)
        objects = mirror / "objects"
        left = [*mirror.glob("*.lock"), *mirror.glob("shallow_*"), *mirror.glob("refs/keep/*.lock")]
        left += [*objects.glob("pack/tmp_*"), *objects.glob("pack/.tmp-*")]
        left += [*objects.glob("incoming-*"), *objects.glob("tmp_objdir-*")]
        for path in left:
            _remove(path)

    def used(self, key: str) -> None:
        """Record that the mirror is used now."""
        with suppress(OSError):
            (self.mirror(key) / "used").touch()

    def remove(self, key: str) -> None:
        """Remove the mirror; call it under its exclusive lock."""
        gone = self._mirrors / f".gone-{key}-{os.getpid()}-{time.monotonic_ns()}"
        with suppress(FileNotFoundError):
            self.mirror(key).rename(gone)
            _remove(gone)

    def growing(self, key: str) -> int:
        """Bytes received so far by the fetch under way."""
        return sum(_size(path) for path in (self.mirror(key) / "objects" / "pack").glob("tmp_*"))

    def make_room(self, most: int, spared: str) -> int:
        """Remove unused mirrors, least recently used first, until the total is at most `most` bytes; never `spared`.

        Returns the total afterwards.
        """
        found = []
        for path in self._mirrors.glob("*.git"):
            with suppress(OSError):
                found.append(((path / "used").stat().st_mtime, path.stem, tree_size(path)))
        taken = sum(size for _, _, size in found)
        for _, key, size in sorted(found):
            if taken <= most:
                break
            if key == spared:
                continue
            with self._locked_at_once(key) as ours:
                if ours:
                    self.remove(key)
                    taken -= size
        return taken

    @contextmanager
    def _locked_at_once(self, key: str) -> Iterator[bool]:
        handle = os.open(self._locks / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _try_lock(handle, fcntl.LOCK_EX)
        finally:
            os.close(handle)


def tree_size(folder: Path) -> int:
    """Total size in bytes of the files in `folder`."""
    return sum(_size(Path(where, name)) for where, _, names in os.walk(folder) for name in names)


def _size(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except OSError:
        return 0  # removed meanwhile


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
