"""Carries the streams of a process beside the shell through FIFOs, so that the engine only starts the process.

The engine starts a bash, which reads the name of three FIFOs, opens them if the first one holds `WORD`, and replaces
itself by the process. Otherwise it keeps the engine's streams. No process can guess the name, and once the FIFOs are
open only the container's root can open them again.

The engine's stream stays open and silent. Its end is the end of the process: at once, or within 2 s if other processes
hold it. The end of a FIFO would not do, because any process that holds it open delays it.
"""

import asyncio
import fcntl
import os
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox_server.sandbox.bash.fifos import TARGET, WORD
from sandbox_server.sandbox.engine import ExecStream

_PIECE = 1 << 15
_WRITTEN = 1 << 16  # a FIFO holds as much
_WIDE = 1 << 18  # capacity of `in` after it was full once, because a file is probably being sent
_ROOM_S = 0.001  # pause before writing to a FIFO that was full: each read of the process makes only a little room
_AHEAD = 1 << 17  # bytes read ahead of the consumer
_AFTER_END = 1 << 17  # most bytes of each stream to read after the process's end: others may go on writing
_AT_ONCE = 4  # pieces written before yielding to the event loop: the reader may be as fast as we are
_PAUSE_S = 0.005  # between two pieces of dropped output, so that a flood costs little
_ANSWER_S = 30.0  # for the bash to say which streams it uses, on a busy host
_CHOICE = 64  # bytes of its answer at most; more is the engine's message about a process that it could not start
_OUT, _ERR = 1, 2
_SUFFIXES = {_OUT: ".out", _ERR: ".err"}
ENGINE = 9  # descriptor of the engine's stream in the process; exec_channel.bash closes it in commands
# Both output FIFOs are opened read-write, so that SIGPIPE does not end a command whose server was killed.
_BECOME = f"""IFS= read -r f; f={TARGET}/$f
if [[ -p $f.in ]] && {{ exec 3< "$f.in" 5<> "$f.out" 6<> "$f.err"; }} 2> /dev/null &&
  IFS= read -r -t 1 -u 3 word && [[ $word == {WORD.decode().strip()} ]]; then
  exec {ENGINE}>&1 0<&3 1<&5 2<&6 3<&- 5<&- 6<&-
  printf 'fifos\\n' >&{ENGINE}
else
  printf 'engine\\n'
fi
exec "$@"
"""


class FifoStream:
    """Implements `sandbox.engine.ExecStream`."""

    def __init__(self, stream: ExecStream, early: Sequence[tuple[int, bytes]], ends: "_Ends | None") -> None:
        """`early`: output that was read already. `ends`: None if the engine's stream is used."""
        self._stream = stream
        self._early = deque(early)
        self._ends = ends
        self._watch = None if ends is None else asyncio.create_task(_watch(stream, ends))

    @classmethod
    async def open(
        cls, folder: Path, argv: Sequence[str], start: Callable[[Sequence[str]], Awaitable[ExecStream]]
    ) -> "FifoStream":
        """Start `argv` by the engine (`start`), with its streams in `folder`, which the container sees at TARGET.

        Raises as `start`.
        """
        try:
            ends = _Ends(folder)
        except OSError:  # no room, no folder: the bash finds no FIFO
            ends = None
        try:
            stream = await start(["bash", "--noprofile", "--norc", "-p", "-c", _BECOME, "exec-channel", *argv])
        except BaseException:
            if ends is not None:
                ends.close()
            raise
        try:
            await stream.write((ends.name if ends else "-").encode() + b"\n")
            early = await _choice(stream)
        except BaseException:
            stream.close()
            if ends is not None:
                ends.close()
            raise
        if early is None and ends is not None:
            ends.opened()
            return cls(stream, (), ends)
        if ends is not None:
            ends.close()
        return cls(stream, early or (), None)

    async def write(self, data: bytes) -> None:
        """See `ExecStream.write`."""
        if self._ends is None:
            await self._stream.write(data)
        else:
            await self._ends.write(data)

    def end_input(self) -> None:
        """See `ExecStream.end_input`."""
        if self._ends is None:
            self._stream.end_input()
        else:
            self._ends.end_input()

    async def receive(self) -> tuple[int, bytes] | None:
        """See `ExecStream.receive`."""
        if self._early:
            return self._early.popleft()
        return await (self._stream.receive() if self._ends is None else self._ends.receive())

    async def exit_code(self) -> int | None:
        """See `ExecStream.exit_code`."""
        return await self._stream.exit_code()

    async def resize(self, rows: int, cols: int) -> None:
        """See `ExecStream.resize`."""
        await self._stream.resize(rows, cols)

    def close(self) -> None:
        """See `ExecStream.close`. If the process goes on, its output is read and dropped, so that it does not block."""
        self._stream.close()  # also ends the watch
        if self._ends is not None:
            self._ends.close()


async def _choice(stream: ExecStream) -> list[tuple[int, bytes]] | None:
    """Wait for the bash's choice: None if it has opened the FIFOs, else the output on the engine's streams so far."""
    seen, rest = b"", []
    with suppress(TimeoutError):
        async with asyncio.timeout(_ANSWER_S):
            while len(seen) < _CHOICE and (frame := await stream.receive()) is not None:
                if frame[0] != _OUT:
                    rest.append(frame)
                    continue
                seen += frame[1]
                if seen == b"fifos\n":
                    return None
                if seen.startswith(b"engine\n"):
                    seen = seen.removeprefix(b"engine\n")
                    break
    return [*([(_OUT, seen)] if seen else []), *rest]


async def _watch(stream: ExecStream, ends: "_Ends") -> None:
    """Wait for the end of the engine's stream; output there is forged by another process, and counts as the end."""
    try:
        await stream.receive()
    finally:
        ends.process_ended()


class _Ends:
    """The server's ends of the three FIFOs of one process."""

    def __init__(self, folder: Path) -> None:
        """Create the FIFOs and open them. Raises OSError."""
        self.name = secrets.token_hex(16)
        self._in = -1
        self._outs: dict[int, int] = {}
        self._paths = {suffix: folder / (self.name + suffix) for suffix in (".in", *_SUFFIXES.values())}
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._ahead = 0  # bytes in `_pieces`
        self._reading = False
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._closed = False
        self._ended = False
        self._writing = asyncio.Lock()  # only one writer may wait for room, and each one's data must stay together
        try:
            for path in self._paths.values():
                os.mkfifo(path)
                path.chmod(0o666)  # regardless of the umask: the process may run as any user
            self._in = os.open(self._paths[".in"], os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            for number, suffix in _SUFFIXES.items():
                self._outs[number] = os.open(self._paths[suffix], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.write(self._in, WORD)
        except BaseException:
            self.close()
            raise

    def opened(self) -> None:
        """After the process has opened its ends: keep only ours, and let nobody else open the FIFOs by name."""
        inward = os.open(self._paths[".in"], os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.close(self._in)
        self._in = inward
        self._paths.pop(".in").unlink()
        for path in self._paths.values():
            path.chmod(0o600)
        self._read_on()

    async def write(self, data: bytes) -> None:
        async with self._writing:
            await self._write(memoryview(data))

    async def _write(self, left: memoryview) -> None:
        pieces = 0
        while left and self._in >= 0:
            try:
                left = left[os.write(self._in, left[:_WRITTEN]) :]
                pieces += 1
                if pieces % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            except BlockingIOError:
                await self._wait_for_room()
            except BrokenPipeError:
                return

    async def _wait_for_room(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the kernel may allow no more
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _WIDE)
        self._room = room = loop.create_future()
        loop.add_writer(self._in, _wake, room)
        try:
            await room
        finally:
            self._room = None
            if self._in >= 0:
                loop.remove_writer(self._in)
        await asyncio.sleep(_ROOM_S)

    def end_input(self) -> None:
        if self._in >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_writer(self._in)
            os.close(self._in)
            self._in = -1
            if self._room is not None:
                _wake(self._room)

    async def receive(self) -> tuple[int, bytes] | None:
        while not self._pieces:
            if self._ended or self._closed or not self._outs:
                return None
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None
        piece = self._pieces.popleft()
        self._ahead -= len(piece[1])
        if not (self._reading or self._ended or self._closed) and self._ahead < _AHEAD:
            self._read_on()
        return piece

    def _read_on(self) -> None:
        # stay registered while the process is idle: adding and removing readers costs as much as a short command
        self._reading = True
        for number, fd in self._outs.items():
            asyncio.get_running_loop().add_reader(fd, self._readable, number)

    def _pause(self) -> None:
        self._reading = False
        for fd in self._outs.values():
            asyncio.get_running_loop().remove_reader(fd)

    def _readable(self, number: int) -> None:
        self._read(number)
        if self._ahead >= _AHEAD:
            self._pause()
        self._tell()

    def _read(self, number: int) -> int:
        """Read one piece into the queue; return its size."""
        try:
            data = os.read(self._outs[number], _PIECE)
        except BlockingIOError:
            return 0
        if data:
            self._pieces.append((number, data))
            self._ahead += len(data)
        else:
            self._end(number)
        return len(data)

    def _tell(self) -> None:
        if self._news is not None:
            _wake(self._news)

    def process_ended(self) -> None:
        """End the stream after the output so far, even if other processes hold the FIFOs open."""
        if self._closed:
            return
        self._ended = True
        self.end_input()
        self._pause()
        for number in list(self._outs):
            for _ in range(_AFTER_END // _PIECE):
                if number not in self._outs or not self._read(number):
                    break
        self._tell()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._tell()
        if ".in" in self._paths:  # the process has not opened them
            if self._in >= 0:
                os.close(self._in)
                self._in = -1
            for number in list(self._outs):
                self._end(number)
            self._paths.pop(".in").unlink(missing_ok=True)
            for path in self._paths.values():
                path.unlink(missing_ok=True)
            return
        self.end_input()
        self._pause()
        for number, fd in list(self._outs.items()):
            del self._outs[number]
            _Discarded(fd, self._paths[_SUFFIXES[number]])

    def _end(self, number: int) -> None:
        fd = self._outs.pop(number)
        if self._reading:
            asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
        if ".in" not in self._paths:
            self._paths[_SUFFIXES[number]].unlink(missing_ok=True)


class _Discarded:
    """Reads a FIFO to its end, drops the data, and removes the FIFO."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._read()  # if all writers ended before it was opened, the loop would never report it

    def _read(self) -> None:
        self._loop.remove_reader(self._fd)
        with suppress(BlockingIOError):
            if not os.read(self._fd, _PIECE):
                os.close(self._fd)
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)
                return
        self._loop.call_later(_PAUSE_S, self._loop.add_reader, self._fd, self._read)


def discard_left(folder: Path) -> None:
    """Read and drop the output of processes that an earlier server started, which would block without a reader."""
    for suffix in _SUFFIXES.values():
        for path in folder.glob(f"*{suffix}"):
            with suppress(OSError):
                _Discarded(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), path)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
