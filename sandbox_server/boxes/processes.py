"""Running commands in the boxes of this node, and the followers of their output.

A command outlives the request that started it: it ends by itself, by its timeout or by a signal. Followers may come and
go. Output that nobody follows is discarded; the end of a command is kept for a while for late callers.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox_server import clock, telemetry
from sandbox_server.boxes import orphans
from sandbox_server.boxes.command import CommandLine
from sandbox_server.boxes.events import ERROR, INFO, BoxEvents
from sandbox_server.boxes.orphans import CommandNotes
from sandbox_server.errors import ServiceError, UnknownProcess
from sandbox_server.sandbox.base import Process, ProcessEnd, Sandbox, Stream
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

PIECE = 32 << 10
"""Maximum bytes of joined output."""
NOTED_AFTER_S = 0.5
"""Commands that run this long are noted for a later server; noting the many shorter ones would not pay."""
_FORGOTTEN_IN = 6
"""The timer that forgets ended commands runs at most this often in `ended_s` seconds."""
_LOGGER = "process"
_ADOPTED = 10_000
"""Maximum boxes remembered as adopted."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Bounds on what is kept for followers."""

    backlog_bytes: int = 1 << 20
    """Output not yet taken by a follower; at this size the command waits for it."""
    stall_s: float = 60.0
    """Seconds that a command waits for a stalled follower; then the follower is dropped."""
    ended_s: float = 60.0
    """How long the end of a command is kept."""
    ended: int = 1000
    """Maximum ended commands kept per box."""


class FollowerTooSlow(Exception):
    """The follower stalled for too long and was dropped."""


class OutputEnded(Exception):
    """The command has ended and all its output was delivered; see `Running.end` and `Running.fault`."""


class Follower:
    """Receives a command's output from its creation on, and the command's end."""

    def __init__(self, running: "Running", limits: ProcessLimits) -> None:
        self._running = running
        self._limits = limits
        self._pieces: deque[tuple[Stream, bytes]] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.too_slow = False

    def add(self, stream: Stream, data: bytes) -> None:
        """Queue output of the command."""
        self._pieces.append((stream, data))
        self._size += len(data)
        if self._size >= self._limits.backlog_bytes:
            self.room.clear()
        self._news.set()

    def wake(self) -> None:
        """Wake the reader and the pump: the command has ended, or this follower was dropped or closed."""
        self._news.set()
        self.room.set()

    async def next(self, timeout_s: float) -> tuple[Stream, bytes] | None:
        """The next piece of output; None: none within `timeout_s`.

        Raises:
            OutputEnded: no more will come. FollowerTooSlow.

        """
        if not self._pieces and not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
        if self._pieces:
            return self._take()
        if self.too_slow:
            raise FollowerTooSlow
        if self._over:
            raise OutputEnded
        self._news.clear()
        return None

    @property
    def _over(self) -> bool:
        return self.too_slow or self._running.over.is_set()

    def _take(self) -> tuple[Stream, bytes]:
        """Join small pieces of one stream, up to PIECE bytes: a frame for each would cost more than its content."""
        stream, data = self._pieces.popleft()
        parts, size = [data], len(data)
        while self._pieces and self._pieces[0][0] is stream and size + len(self._pieces[0][1]) <= PIECE:
            parts.append(self._pieces.popleft()[1])
            size += len(parts[-1])
        self._size -= size
        if self._size < self._limits.backlog_bytes:
            self.room.set()
        if not self._pieces and not self._over:
            self._news.clear()
        return stream, b"".join(parts)

    def close(self) -> None:
        """Stop following; the command continues."""
        self.wake()
        self._running.followers.discard(self)


class Running:
    """A running or recently ended command."""

    def __init__(self, process: Process, command: CommandLine, limits: ProcessLimits, began_at: float) -> None:
        self.process = process
        self.began_at = began_at
        """Unix seconds."""
        self.noted = False
        self.command = command
        self.pid = process.pid
        self.stdin_open = command.stdin
        """Whether its client may still write to its stdin."""
        self.over = asyncio.Event()
        """Set once it has ended and all its output was passed to the followers."""
        self.over_since = 0.0
        """End by `time.monotonic`; 0.0 until it is listed as ended."""
        self.end: ProcessEnd | None = None
        self.fault: ServiceError | None = None
        """Why its end cannot be known, e.g. its sandbox is gone."""
        self.followers: set[Follower] = set()
        self._limits = limits

    def follow(self) -> Follower:
        """A follower of the output from now on; the caller closes it."""
        follower = Follower(self, self._limits)
        self.followers.add(follower)
        return follower

    async def pump(self) -> None:
        """Pass its output to the followers until it ends."""
        try:
            async for stream, data in self.process.output():
                for follower in self.followers:
                    follower.add(stream, data)
                while held := [follower for follower in self.followers if not follower.room.is_set()]:
                    await self._held_up_by(held)
            self.end = await self.process.wait()
        except ServiceError as error:
            self.fault = error
        finally:
            self.over.set()
            for follower in self.followers:
                follower.wake()

    async def _held_up_by(self, held: Sequence[Follower]) -> None:
        """Wait until one of the followers `held` has room; drop them all if none has within `stall_s` seconds."""
        waits = [asyncio.ensure_future(follower.room.wait()) for follower in held]
        done, _ = await asyncio.wait(waits, timeout=self._limits.stall_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not done:
            for follower in held:
                follower.too_slow = True
                self.followers.discard(follower)
                follower.wake()


@dataclass(slots=True)
class _OfBox:
    """Commands of one box by process id, oldest first."""

    running: dict[int, Running] = field(default_factory=dict)
    ended: dict[int, Running] = field(default_factory=dict)

    def all(self) -> list[Running]:
        return [*self.ended.values(), *self.running.values()]


class Processes:
    """The commands of all boxes of this node."""

    def __init__(
        self,
        limits: ProcessLimits | None = None,
        notes: CommandNotes | None = None,
        events: BoxEvents | None = None,
    ) -> None:
        """`notes`: where long-running commands are noted for a later server; None: nowhere."""
        self._events = events or BoxEvents()
        self._limits = limits or ProcessLimits()
        self._notes = notes
        self._adopted: dict[str, None] = {}
        self._of: dict[str, _OfBox] = {}
        self._pumps = TaskSet("processes")
        self._forgetting: asyncio.TimerHandle | None = None

    def add(self, sid: str, process: Process, command: CommandLine) -> tuple[Running, Follower]:
        """Add a command that has just started; the follower gets all its output."""
        running = Running(process, command, self._limits, clock.now())
        follower = running.follow()
        self._take_in(sid, running)
        self._events.add(sid, _LOGGER, "Process started", pid=running.pid, cmd=" ".join(command.argv))
        return running, follower

    def _take_in(self, sid: str, running: Running) -> None:
        command = running.command
        of_box = self._of.setdefault(sid, _OfBox())
        of_box.running.pop(running.pid, None)
        of_box.ended.pop(running.pid, None)  # the process id was reused: the older end is useless
        if command.tag is not None:
            for other in [other for other in of_box.ended.values() if other.command.tag == command.tag]:
                del of_box.ended[other.pid]
        of_box.running[running.pid] = running
        self._pumps.start(self._pump(sid, running))

    async def adopt(self, sid: str, sandbox: Sandbox) -> None:
        """Add the commands that an earlier server left running in the box; once per box.

        Raises:
            ServiceError.

        """
        if self._notes is None or sid in self._adopted:
            return
        known = {running.pid for running in self._all(sid)}
        for orphan, command, began_at in await orphans.surviving_commands(self._notes, sid, sandbox, known):
            if all(orphan.pid != running.pid for running in self._all(sid)):  # another request may have been first
                running = Running(orphan, command, self._limits, began_at)
                running.noted = True
                self._take_in(sid, running)
        self._adopted[sid] = None
        while len(self._adopted) > _ADOPTED:
            del self._adopted[next(iter(self._adopted))]

    async def _pump(self, sid: str, running: Running) -> None:
        noting = asyncio.get_running_loop().call_later(NOTED_AFTER_S, self._note, sid, running)
        try:
            await running.pump()
            if running.noted and self._notes is not None:
                await self._notes.forget_command(sid, running.pid)
        except Exception:
            log.exception("a command's output broke off", sid=sid, pid=running.pid)
        finally:
            noting.cancel()
            self._ended(sid, running)
            self._tell_end(sid, running)

    def _tell_end(self, sid: str, running: Running) -> None:
        end = running.end
        if end is None:  # the box has ended, or this server stops
            return
        how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
        self._events.add(
            sid,
            _LOGGER,
            "Process timed out" if end.timed_out else "Process ended",
            level=INFO if end.exit_code == 0 else ERROR,
            pid=running.pid,
            end=how,
        )

    def _ended(self, sid: str, running: Running) -> None:
        of_box = self._of.get(sid)
        if of_box is None or of_box.running.get(running.pid) is not running:
            return  # its process id was reused
        del of_box.running[running.pid]
        of_box.ended[running.pid] = running
        running.over_since = time.monotonic()
        if len(of_box.ended) > self._limits.ended:
            del of_box.ended[next(iter(of_box.ended))]
        self._forget_later(self._limits.ended_s)

    def _note(self, sid: str, running: Running) -> None:
        if self._notes is not None and not running.noted:
            running.noted = True
            self._pumps.start(self._noted(self._notes, sid, running))

    async def _noted(self, notes: CommandNotes, sid: str, running: Running) -> None:
        try:
            await notes.note_command(sid, running.pid, orphans.note_json(running.command, running.began_at))
        except ServiceError as error:
            log.warning("a command could not be recorded: a restart would lose it", sid=sid, error=error.detail)

    def _forget_later(self, seconds: float) -> None:
        # one timer for all commands, to wake the server less often than one for each would
        if self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().call_later(seconds, self._forget)

    def _forget(self) -> None:
        """Drop commands that ended at least `ended_s` ago."""
        self._forgetting = None
        now, next_s = time.monotonic(), float("inf")
        for sid, of_box in list(self._of.items()):
            for running in list(of_box.ended.values()):
                left_s = running.over_since + self._limits.ended_s - now
                if left_s > 0:
                    next_s = min(next_s, left_s)
                    break
                del of_box.ended[running.pid]
            if not of_box.ended and not of_box.running:
                del self._of[sid]
        if next_s < float("inf"):
            self._forget_later(max(next_s, self._limits.ended_s / _FORGOTTEN_IN))

    def _all(self, sid: str) -> list[Running]:
        of_box = self._of.get(sid)
        return [] if of_box is None else of_box.all()

    def listed(self, sid: str) -> list[Running]:
        """The running commands of the box."""
        of_box = self._of.get(sid)
        return [running for running in of_box.running.values() if not running.over.is_set()] if of_box else []

    def find(self, sid: str, *, pid: int | None = None, tag: str | None = None, ended: bool = False) -> Running:
        """The newest command with this pid, or with this tag if `pid` is None; `ended`: include ended commands.

        Raises:
            UnknownProcess.

        """
        found = [
            running
            for running in self._all(sid)
            if (running.pid == pid if pid is not None else running.command.tag == tag)
        ]
        found = [running for running in found if ended or not running.over.is_set()]
        if not found:
            named = f"pid {pid}" if pid is not None else f"tag {tag}"
            raise UnknownProcess(f"process with {named} not found; it has ended, or was never begun here")
        return sorted(found, key=lambda running: running.began_at)[-1]

    async def close(self) -> None:
        """Stop following all commands; they continue in their containers."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        await self._pumps.cancel()
        self._of.clear()
