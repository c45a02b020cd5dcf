"""FIFOs that carry the bytes of a container's shell, so that the engine does not have to.

They lie in a folder of this host, mounted read-only in the container at `TARGET`: its processes can read, fill and hold
open the FIFOs of their own container, but neither replace nor remove them. boot.bash uses them if `in` holds `WORD`,
which proves that both sides see the same FIFO.
"""

import asyncio
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from sandbox_server import telemetry

log = telemetry.logger(__name__)

TARGET = "/run/sandbox/io"
WORD = b"sandbox\n"
_NAMES = ("in", "out")

_PIECE = 1 << 16  # a FIFO holds as much
_PAUSE_S = 0.001  # between two reads of a flood, which may go on as fast as we read
_LONGEST_PAUSE_S = 0.008
_FLOOD = 1 << 20
"""Bytes of output since the last input from which on it is a flood. A terminal hands on 4 KB at a time, each of which
would wake the server."""
_LONGER = 1 << 24
"""Bytes of output after which the pause is one `_PAUSE_S` longer, again and again up to the longest. A flood costs half
a CPU at 60 MB/s: the kernel's threads hand on what a terminal prints, and they have the same weight as everybody."""
_DRAINED = 1 << 20  # most bytes that one `drain` reads, because another process may go on writing
_FLAGS = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # read-write: no end of file, no wait for a peer
_LEFT_S = 600.0  # a folder older than this without a container is removed; a creation takes less


class Fifos:
    """The server's ends of one container's two FIFOs: the shell's terminal reads `in` and writes `out`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._in = self._out = -1
        self._waiting = bytearray()
        self._said = 0
        """Bytes read since the last input."""
        self._received: Callable[[bytes], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def make(self) -> None:
        """Create empty FIFOs, replacing those of an earlier start. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)  # /run is empty after the host's start
        self._folder.chmod(0o711)
        self.take_away()
        for name in _NAMES:
            os.mkfifo(self._folder / name, 0o600)

    def take_away(self) -> None:
        """Remove the FIFOs but keep the folder, which a restart of the container needs. Raises OSError."""
        self.close()
        for name in _NAMES:
            (self._folder / name).unlink(missing_ok=True)

    def open(self, received: Callable[[bytes], None]) -> bool:
        """Open the FIFOs and call `received` with all output from now on; False if there are no FIFOs."""
        self.close()
        try:
            self._in, self._out = self._opened("in"), self._opened("out")
        except OSError:
            self.close()
            return False
        self._received = received
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._out, self._readable)
        return True

    def write(self, data: bytes) -> None:
        """Queue `data`. It stays in memory until the container reads it, or until `close`."""
        if self._loop is None:
            return
        self._said = 0
        if not self._waiting:
            data = data[self._written(data) :]
            if data:
                self._loop.add_writer(self._in, self._go_on)
        self._waiting += data

    def drain(self) -> None:
        """Deliver the output so far to the receiver."""
        for _ in range(_DRAINED // _PIECE):
            if not self._read():
                return

    def discard(self) -> None:
        """Drop unread input, because its reader has ended, perhaps in the middle of a line."""
        self._waiting.clear()
        with suppress(OSError):
            for _ in range(_DRAINED // _PIECE):
                os.read(self._in, _PIECE)

    def close(self) -> None:
        """Close our ends; unread data stays in the FIFOs while the container holds them open."""
        self._received = None
        self._waiting.clear()
        if self._loop is not None:
            self._loop.remove_reader(self._out)
            self._loop.remove_writer(self._in)
            self._loop = None
        for fd in (self._in, self._out):
            if fd >= 0:
                os.close(fd)
        self._in = self._out = -1

    def remove(self) -> None:
        """Remove the folder."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _opened(self, name: str) -> int:
        fd = os.open(self._folder / name, _FLAGS)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(f"{self._folder / name} is not a FIFO")
        return fd

    def _readable(self) -> None:
        loop, fd = self._loop, self._out
        if (self._read() == _PIECE or self._said > _FLOOD) and loop is not None and fd == self._out:
            loop.remove_reader(fd)
            pause_s = min(_LONGEST_PAUSE_S, _PAUSE_S * (1 + self._said / _LONGER))
            loop.call_later(pause_s, self._read_on, self._received)

    def _read_on(self, received: Callable[[bytes], None] | None) -> None:
        if self._loop is not None and self._received is received:  # unless closed meanwhile
            self._loop.add_reader(self._out, self._readable)

    def _read(self) -> int:
        """Read one piece and deliver it; return its size."""
        if self._received is None:
            return 0
        try:
            data = os.read(self._out, _PIECE)
        except BlockingIOError:
            return 0
        self._said += len(data)
        self._received(data)
        return len(data)

    def _written(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self._in, data)
        except BlockingIOError:
            return 0

    def _go_on(self) -> None:
        del self._waiting[: self._written(self._waiting)]
        if not self._waiting and self._loop is not None:
            self._loop.remove_writer(self._in)


class FifoFolders:
    """The folders of one node's containers, in a folder of their own."""

    def __init__(self, base: Path | None, node: str) -> None:
        """`base`: None if FIFOs are not wanted."""
        self._base = base
        self._node = node
        self.unused = "" if base else "SANDBOX_FIFO_DIR=off"
        """Why no folders are made; "" while they are."""

    def make(self) -> Path | None:
        """Make a folder with a random name for a container; None if FIFOs are not used."""
        if self._base is None or self.unused:
            return None
        folder = self._base / self._node / secrets.token_hex(8)
        try:
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir()
            folder.chmod(0o711)  # any user of the container may open a FIFO whose name it knows
        except OSError as e:
            self.give_up(f"no folder can be made: {e}; see SANDBOX_FIFO_DIR")
            return None
        return folder

    def give_up(self, why: str) -> None:
        """Make no folders from now on."""
        if not self.unused:
            self.unused = why
            log.info("the engine carries the bytes of shells, which costs an action some 2 ms of CPU", why=why)

    def remove_left(self, used: Collection[str]) -> None:
        """Remove folders without a container, which killed servers or commands of this node left behind.

        `used`: paths of the folders that the engine's containers mount.
        """
        before = time.time() - _LEFT_S
        for folder in self._folders():
            with suppress(OSError):
                if str(folder) not in used and folder.stat().st_mtime < before:
                    shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove this node's own folder if it is empty."""
        if self._base is not None:
            with suppress(OSError):
                (self._base / self._node).rmdir()

    def _folders(self) -> Iterator[Path]:
        if self._base is None:
            return
        with suppress(OSError):
            for node in list(self._base.iterdir()):
                if node.name == self._node or node.name.startswith(f"{self._node}+"):
                    yield from list(node.iterdir())
