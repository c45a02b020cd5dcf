"""The commands that run in the boxes of this node, each with those who follow its output.

A command outlives whoever began it: only its own end, its timeout or a signal ends it. Followers may come and go. What
nobody follows is thrown away; how it ended is kept a while for those who come late.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox_server import clock, telemetry
from sandbox_server.boxes import orphans
from sandbox_server.boxes.command import Command
from sandbox_server.boxes.orphans import CommandNotes
from sandbox_server.errors import ServiceError, UnknownProcess
from sandbox_server.sandbox.base import Process, ProcessEnd, Sandbox, Stream
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

PIECE = 32 << 10
"""Bytes that are told at a time, at most."""
NOTED_AFTER_S = 0.5
"""Commands that run so long are noted for the server after this one; most are shorter, and it would not pay."""
_FORGOTTEN_IN = 6
"""Turns in which the commands that end within `ended_s` are forgotten."""
_ADOPTED = 10_000
"""Boxes of which is known that all commands noted are here."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Bounds on what is kept for followers."""

    backlog_bytes: int = 1 << 20
    """Of output that a follower has not taken; then the command waits for it."""
    stall_s: float = 60.0
    """How long a command waits for a follower that takes nothing, before it goes on without it."""
    ended_s: float = 60.0
    """How long the end of a command is kept."""
    ended: int = 1000
    """Of how many commands of a box the end is kept, at most."""


class Lagging(Exception):
    """The follower took nothing for so long that the command went on without it."""


class Over(Exception):
    """The command has ended and all of its output was told; see `Running.end` and `Running.fault`."""


class Follower:
    """One who is told a command's output from now on, and its end."""

    def __init__(self, running: "Running", limits: ProcessLimits) -> None:
        self._running = running
        self._limits = limits
        self._pieces: deque[tuple[Stream, bytes]] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.lagging = False

    def add(self, stream: Stream, data: bytes) -> None:
        """The command wrote something."""
        self._pieces.append((stream, data))
        self._size += len(data)
        if self._size >= self._limits.backlog_bytes:
            self.room.clear()
        self._news.set()

    def wake(self) -> None:
        """The command has ended, or goes on without this follower."""
        self._news.set()
        self.room.set()

    async def next(self, timeout_s: float) -> tuple[Stream, bytes] | None:
        """The next piece, at most PIECE bytes; None: none within `timeout_s`.

        Raises:
            Over: there will be none. Lagging.

        """
        if not self._pieces and not self._over:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
        if self._pieces:
            return self._take()
        if self.lagging:
            raise Lagging
        if self._over:
            raise Over
        self._news.clear()
        return None

    @property
    def _over(self) -> bool:
        return self.lagging or self._running.over.is_set()

    def _take(self) -> tuple[Stream, bytes]:
        """Small pieces of one stream are told as one: a frame each would cost more than they do."""
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
        """Follow no more; the command goes on."""
        self.wake()
        self._running.followers.discard(self)


class Running:
    """A command that was begun, or that has ended not long ago."""

    def __init__(self, process: Process, command: Command, limits: ProcessLimits, began_at: float) -> None:
        self.process = process
        self.began_at = began_at
        """Unix seconds."""
        self.noted = False
        self.command = command
        self.pid = process.pid
        self.over = asyncio.Event()
        """Set once it has ended and all of its output was handed out."""
        self.over_since = 0.0
        """By `time.monotonic`; 0.0 until its box lists it among those that have ended."""
        self.end: ProcessEnd | None = None
        self.fault: ServiceError | None = None
        """Why its end will never be known: its sandbox is gone."""
        self.followers: set[Follower] = set()
        self._limits = limits

    def follow(self) -> Follower:
        """From now on. To be closed."""
        follower = Follower(self, self._limits)
        self.followers.add(follower)
        return follower

    async def pump(self) -> None:
        """Hand its output out until it has ended."""
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
        """Wait until one of them takes something; those that take nothing for too long are left behind."""
        waits = [asyncio.ensure_future(follower.room.wait()) for follower in held]
        done, _ = await asyncio.wait(waits, timeout=self._limits.stall_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if not done:
            for follower in held:
                follower.lagging = True
                self.followers.discard(follower)
                follower.wake()


@dataclass(slots=True)
class _OfBox:
    """By process id, the oldest first."""

    running: dict[int, Running] = field(default_factory=dict)
    ended: dict[int, Running] = field(default_factory=dict)

    def all(self) -> list[Running]:
        return [*self.ended.values(), *self.running.values()]


class Processes:
    """Of all boxes of this node."""

    def __init__(self, limits: ProcessLimits | None = None, notes: CommandNotes | None = None) -> None:
        """`notes`: what outlives this server; None: nothing does."""
        self._limits = limits or ProcessLimits()
        self._notes = notes
        self._adopted: dict[str, None] = {}
        self._of: dict[str, _OfBox] = {}
        self._pumps = TaskSet("processes")
        self._forgetting: asyncio.TimerHandle | None = None

    def add(self, sid: str, process: Process, command: Command) -> tuple[Running, Follower]:
        """Take a command in that has just begun; the follower misses nothing of it."""
        running = Running(process, command, self._limits, clock.now())
        follower = running.follow()
        self._take_in(sid, running)
        return running, follower

    def _take_in(self, sid: str, running: Running) -> None:
        command = running.command
        of_box = self._of.setdefault(sid, _OfBox())
        of_box.running.pop(running.pid, None)
        of_box.ended.pop(running.pid, None)  # the same number again: the older one's end is of no more use
        if command.tag is not None:
            for other in [other for other in of_box.ended.values() if other.command.tag == command.tag]:
                del of_box.ended[other.pid]
        of_box.running[running.pid] = running
        self._pumps.start(self._pump(sid, running))

    async def adopt(self, sid: str, sandbox: Sandbox) -> None:
        """Take in what a server before this one left running in the box; once for each box.

        Raises:
            ServiceError.

        """
        if self._notes is None or sid in self._adopted:
            return
        known = {running.pid for running in self._all(sid)}
        for orphan, command, began_at in await orphans.left(self._notes, sid, sandbox, known):
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

    def _ended(self, sid: str, running: Running) -> None:
        of_box = self._of.get(sid)
        if of_box is None or of_box.running.get(running.pid) is not running:
            return  # another has its number
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
            await notes.note_command(sid, running.pid, orphans.noted(running.command, running.began_at))
        except ServiceError as error:
            log.warning("a command is not noted: a restart would lose it", sid=sid, error=error.detail)

    def _forget_later(self, seconds: float) -> None:
        # one timer for all: one for each command would wake the server once more for each
        if self._forgetting is None:
            self._forgetting = asyncio.get_running_loop().call_later(seconds, self._forget)

    def _forget(self) -> None:
        """Those that ended long enough ago."""
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
        """Those that run."""
        of_box = self._of.get(sid)
        return [running for running in of_box.running.values() if not running.over.is_set()] if of_box else []

    def find(self, sid: str, *, pid: int | None = None, tag: str | None = None, ended: bool = False) -> Running:
        """The one with this number, else the newest with this tag; `ended`: also when it has ended.

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
        """Let go of all; they live on in their containers."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        await self._pumps.cancel()
        self._of.clear()
