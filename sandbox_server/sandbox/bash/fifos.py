"""FIFOs that carry the bytes of a container's shell, so that the engine does not have to.

They lie in a folder of this host, mounted read-only in the container at `TARGET`: its processes can read, fill and hold
open the FIFOs of their own container, but neither replace nor remove them. boot.bash uses them if `in` holds `WORD`,
which proves that both sides see the same FIFO.
"""

import asyncio
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TARGET = "/run/sandbox/io"
WORD = b"sandbox\n"
_NAMES = ("in", "out")

_PIECE = 1 << 16  # a FIFO holds as much
_BUFFER = memoryview(bytearray(_PIECE))
"""Each read of the event loop fills it. `os.read` would allocate a piece, which the C library maps and unmaps, for what
is mostly a line."""
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
            size = os.readv(self._out, [_BUFFER])
        except BlockingIOError:
            return 0
        data = bytes(_BUFFER[:size])
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
