"""One command on an exec channel as a `sandbox.process.Process`: its output, end and signals."""

import asyncio
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from sandbox_server.errors import CommandBroken, SandboxExhausted, SandboxLost, SandboxPaused, ServiceError
from sandbox_server.sandbox.bash import frames
from sandbox_server.sandbox.bash.clock import SandboxClock
from sandbox_server.sandbox.bash.exec_channel import ExecChannel
from sandbox_server.sandbox.process import ProcessEnd, Size, Stream
from sandbox_server.telemetry import logger

log = logger(__name__)

_FROZEN_LOOK_S = 0.5  # polling interval for a container that was frozen at a command's timeout
_LATE_S = 1.0  # a time limit that is noticed later than this: the server stood still, perhaps the whole host
_AFTER_KILL_S = 5.0  # for the rest of a killed command's output; anything later is lost
_SIGNALS = 128  # + signal number: a shell's exit status for a process ended by a signal


@dataclass(frozen=True, slots=True)
class StartedCommand:
    """A running command, as its channel announced it."""

    nonce: str
    tag: str
    pid: int
    tick: str
    """The host's uptime in ticks just before the start; `last` is the highest process id at that time."""
    last: str


class MarkSplitter:
    """Splits a stream at a mark; the mark may arrive in pieces."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._held = b""
        self.rest: bytes | None = None
        """The first bytes after the mark, at most `frames.LONGEST`; None until the mark has been seen."""

    def feed(self, data: bytes) -> bytes:
        """Take `data`; return the bytes so far that cannot be part of the mark."""
        if self.rest is not None:
            self.rest += data[: frames.LONGEST - len(self.rest)]
            return b""
        data = self._held + data
        at = data.find(self._mark)
        if at >= 0:
            behind = at + len(self._mark)
            self._held, self.rest = b"", data[behind : behind + frames.LONGEST]
            return data[:at]
        longest = min(len(self._mark) - 1, len(data))
        held = next((n for n in range(longest, 0, -1) if data.endswith(self._mark[:n])), 0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def take(self) -> bytes:
        """Return the bytes held back, once the stream has ended without the mark."""
        held, self._held = self._held, b""
        return held


@dataclass(frozen=True, slots=True)
class ChannelMode:
    """How a command uses its channel."""

    shared: bool
    """The channel's bash reports the command's end by marks on both streams. Otherwise the command has replaced the
    bash: it ends with the stream, and the engine reports the exit status."""
    reusable: bool
    """A shared channel can take another command afterwards."""
    pty: bool
    timeout_s: float | None


class Channels(Protocol):
    """The operations on other channels that a command needs."""

    async def kill(self, begun: StartedCommand) -> None:
        """Kill the command's whole tree. Raises SandboxLost, SandboxExhausted."""
        ...

    async def signal(self, begun: StartedCommand, number: int) -> bool:
        """Signal the command; False if it has ended. Raises SandboxLost, SandboxExhausted."""
        ...

    async def status(self, channel: ExecChannel) -> int:
        """The exit status of a command that replaced its channel's bash. Raises SandboxLost, EngineUnavailable."""
        ...

    def give_back(self, channel: ExecChannel) -> None:
        """Keep the channel for another command."""
        ...

    def drop(self, channel: ExecChannel) -> None:
        """Close the channel."""
        ...


class ChannelProcess:
    """Implements `sandbox.process.Process`."""

    def __init__(
        self,
        channel: ExecChannel,
        begun: StartedCommand,
        first: bytes,
        errors: bytes,
        mode: ChannelMode,
        clock: SandboxClock,
        channels: Channels,
    ) -> None:
        """`first` and `errors`: output on stdout and stderr that was read with the announcement of the command."""
        self._channel = channel
        self._begun = begun
        self._mode = mode
        self._channels = channels
        mark = begun.nonce.encode()
        self._splitters = {Stream.STDOUT: MarkSplitter(mark + b" "), Stream.STDERR: MarkSplitter(mark + b"\n")}
        self._ready: deque[tuple[Stream, bytes]] = deque()
        self._reading = asyncio.Lock()
        self._end: ProcessEnd | None = None
        self._failure: ServiceError | None = None
        self._timed_out = False
        self._extended = False
        """Its time limit was extended; once, so that it is bounded on a server that is always late."""
        self._sent: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._expiry: asyncio.TimerHandle | None = None
        self._clock = clock
        self._expires_at = float("inf")
        if mode.timeout_s is not None:
            self._expires_at = clock.now() + mode.timeout_s
            self._look_in(mode.timeout_s)
        if errors:
            self._took(Stream.STDERR, errors)
        if first:
            self._took(Stream.PTY if mode.pty else Stream.STDOUT, first)

    @property
    def pid(self) -> int:
        """See `sandbox.process.Process`."""
        return self._begun.pid

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """See `sandbox.process.Process`."""
        async with self._reading:
            while (piece := await self._read()) is not None:
                yield piece

    async def wait(self) -> ProcessEnd:
        """See `sandbox.process.Process`."""
        if self._end is None:
            async with self._reading:
                while await self._read() is not None:
                    pass
        if self._failure is not None:
            raise self._failure
        assert self._end is not None
        return self._end

    async def write(self, data: bytes) -> None:
        """See `sandbox.process.Process`."""
        if self._end is None:
            await self._channel.exec_stream.write(data)

    async def close_stdin(self) -> None:
        """See `sandbox.process.Process`."""
        if self._mode.pty:
            await self.write(b"\x04")
        elif self._end is None:
            self._channel.exec_stream.end_input()

    async def signal(self, number: int) -> bool:
        """See `sandbox.process.Process`."""
        if self._end is not None:
            return False
        self._sent.add(number)
        return await self._channels.signal(self._begun, number)

    async def resize(self, size: Size) -> None:
        """See `sandbox.process.Process`."""
        if self._mode.pty and self._end is None:
            await self._channel.exec_stream.resize(size.rows, size.cols)

    async def kill_tree(self) -> None:
        """See `sandbox.process.Process`."""
        self._sent.add(signal.SIGKILL)
        with suppress(SandboxLost):
            await self._channels.kill(self._begun)
        self._close_after_kill()

    def _close_after_kill(self) -> None:
        if self._end is None:
            self._timers.append(asyncio.get_running_loop().call_later(_AFTER_KILL_S, self._channel.exec_stream.close))

    def detach(self) -> None:
        """See `sandbox.process.Process`."""
        if self._end is None:
            self._spawn(self._drain())

    async def _drain(self) -> None:
        try:
            await self.wait()
        except ServiceError:
            return  # a caller of `wait` gets the error

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _look_in(self, seconds: float) -> None:
        self._expiry = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _stop_timers(self) -> None:
        for timer in (*self._timers, *([self._expiry] if self._expiry else [])):
            timer.cancel()

    def _expire(self) -> None:
        if self._clock.stopped:  # a frozen process cannot be killed, and its time limit stands still
            self._look_in(_FROZEN_LOOK_S)
            return
        now = self._clock.now()
        if not self._extended and (late_s := now - self._expires_at) > _LATE_S:
            # The command may have ended meanwhile, or stood still as well: it gets as much time again.
            self._extended = True
            self._expires_at = now + late_s
        if (left_s := self._expires_at - now) > 0:
            self._look_in(left_s)
            return
        self._timed_out = True
        self._spawn(self._expired())

    async def _expired(self) -> None:
        try:
            await self._channels.kill(self._begun)
            self._close_after_kill()
        except ServiceError as e:
            # Paused by somebody else, or `SandboxClock` would know: its time was not its own. Lost: its container died
            # under it, and gVisor did not end its output.
            if isinstance(e, SandboxPaused | SandboxLost):
                self._failure = e
            self._channel.exec_stream.close()  # the reader finds out why

    async def _read(self) -> tuple[Stream, bytes] | None:
        while not self._ready:
            if self._failure is not None:
                raise self._failure
            if self._end is not None:
                return None
            frame = await self._channel.exec_stream.receive()
            if frame is None:
                await self._closed()
            else:
                self._took(Stream(frame[0]), frame[1])
        return self._ready.popleft()

    def _took(self, stream: Stream, data: bytes) -> None:
        if not self._mode.shared:
            self._ready.append((stream, data))
            return
        piece = self._splitters[stream].feed(data)
        if piece:
            self._ready.append((stream, piece))
        report, errors = self._splitters[Stream.STDOUT].rest, self._splitters[Stream.STDERR].rest
        if report is None:
            return
        try:
            line = frames.line_of(report)
            if line is None or errors is None:
                return
            end = frames.parse_end(line)
        except frames.BadFrame:
            self._broken()
            return
        self._ended(end.status, signalled=end.signalled)
        # another process writes after the end report; it would also write into the next command's output
        if self._mode.reusable and end.free and len(report) == len(line) + 1 and not errors:
            self._channels.give_back(self._channel)
        else:
            self._channels.drop(self._channel)

    def _broken(self) -> None:
        """Record that the end report is malformed, so the exit status is unknown."""
        self._failure = CommandBroken("The end of a command")
        self._stop_timers()
        self._channels.drop(self._channel)
        self._spawn(self._put_away())

    async def _put_away(self) -> None:
        try:
            await self._channels.kill(self._begun)
        except ServiceError as e:
            log.warning("a command without a valid end report may still run", code=e.code, error=e.detail)

    def _ended(self, code: int, *, signalled: bool) -> None:
        number = code - _SIGNALS
        if self._timed_out:
            self._end = ProcessEnd(-1, signal.SIGKILL, timed_out=True)
        elif signalled or number in self._sent:
            self._end = ProcessEnd(-1, number)
        else:
            self._end = ProcessEnd(code)
        self._stop_timers()

    async def _closed(self) -> None:
        """Find out how the command ended, because its channel ended without a report."""
        for stream, cut in self._splitters.items():
            if held := cut.take():
                self._ready.append((stream, held))
        try:
            if self._mode.shared:
                # the channel's bash was killed: nobody owns the rest of the command
                with suppress(SandboxExhausted):
                    await self._channels.kill(self._begun)
                self._ended(_SIGNALS + signal.SIGKILL, signalled=True)
            elif self._timed_out:
                self._ended(_SIGNALS + signal.SIGKILL, signalled=True)
            else:
                self._ended(await self._channels.status(self._channel), signalled=False)
        except ServiceError as e:
            self._failure = e
            self._stop_timers()
        finally:
            self._channels.drop(self._channel)
