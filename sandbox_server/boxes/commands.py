"""Commands of boxes with an id, whose output is kept until it is read; each starts once, however often it is sent.

`processes` runs them, like the commands of other protocols. This module gives them ids, collects their output (head and
tail if it is long) and lets clients wait for their end. A restarted server does not know how its predecessor's commands
ended: they are lost, but not run again.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox_server import telemetry
from sandbox_server.boxes.boxes import BoxView
from sandbox_server.boxes.command import CommandLine
from sandbox_server.boxes.processes import Follower, FollowerTooSlow, OutputEnded, Processes, Running
from sandbox_server.errors import CommandLost, MalformedRequest, SandboxLost, ServiceError, UnknownCommand
from sandbox_server.sandbox.base import Output, Process, ProcessEnd, Stream
from sandbox_server.sandbox.collector import Collector
from sandbox_server.state.commands import BegunCommands
from sandbox_server.tasks import TaskSet

log = telemetry.logger(__name__)

_NOTHING = Output(b"")
_NEXT_S = 600.0  # interval between checks of a silent command


@dataclass(frozen=True, slots=True)
class CommandBounds:
    """Bounds on commands whose output is kept."""

    output_bytes: int
    """Kept bytes of each stream of a command, half from its head and half from its tail."""
    total_bytes: int
    """Total of all ended commands of all boxes; the oldest are dropped first."""
    delivered_s: float = 60.0
    """How long a command stays known after its end was delivered: that answer may have been lost in transit."""
    session_s: float = 86400.0
    """How long a session's command is remembered as started: the longest life of a session."""


@dataclass(eq=False)
class BoxCommand:
    """A command as its client sees it."""

    sid: str
    command_id: str
    running: Running
    asked: str = ""
    """The request, or its hash; "" for a session's command, because the journal has its request."""
    began: float = field(default_factory=time.monotonic)
    duration_s: float = 0.0
    """0.0 while it runs."""
    stdout: Output = _NOTHING
    stderr: Output = _NOTHING
    """`stdout` and `stderr` are set when the command ends."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    killed: bool = False
    """By its client."""

    @property
    def end(self) -> ProcessEnd | None:
        """None while it runs, and if its sandbox was lost."""
        return self.running.end

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        return 1024 + sum(len(out.head) + len(out.tail) for out in (self.stdout, self.stderr))

    async def wait(self, wait_s: float) -> None:
        """Return when it has ended, or after `wait_s`.

        Raises:
            SandboxLost: its sandbox is gone. CommandLost: another fault, after which its end can never be known.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.over.wait()
        fault = self.running.fault if self.over.is_set() else None
        if isinstance(fault, SandboxLost):
            raise fault
        if fault is not None:
            raise CommandLost(f"the command's end is not known: {fault.detail}; look at what it should do") from fault


class Commands:
    """The commands with an id in the sandboxes of this node."""

    def __init__(self, processes: Processes, begun: BegunCommands, bounds: CommandBounds) -> None:
        """`begun` remembers across restarts which commands were started."""
        self._processes = processes
        self._begun = begun
        self._bounds = bounds
        self._known: OrderedDict[tuple[str, str], asyncio.Future[BoxCommand]] = OrderedDict()
        self._tasks = TaskSet("commands")
        self._bytes = 0

    async def run(
        self,
        view: BoxView,
        command_id: str,
        command: CommandLine,
        begin: Callable[[], Awaitable[Process]],
        stdin: bytes | None = None,
        *,
        asked: str = "",
    ) -> BoxCommand:
        """The command with this id, started by `begin` unless it was started before; `stdin` is its input.

        `asked`: the whole request as a text, or its hash.

        Raises:
            MalformedRequest: the id belongs to another request. CommandLost: an earlier server started it.
            What `begin` raises: then it was not started. StateUnavailable.

        """
        key = view.sid, command_id
        if key not in self._known:
            beginning = asyncio.create_task(self._begin(view, command_id, command, begin, stdin, asked))
            self._known[key] = beginning
            beginning.add_done_callback(lambda done: self._began(key, done))
        # shielded: if the client disconnects, the command still starts, and a repeated request finds it
        known = await asyncio.shield(self._known[key])
        if known.asked != asked:
            raise MalformedRequest(
                f"This Idempotency-Key is the id of another command of box {view.sid}; use another. Nothing was run."
            )
        return known

    async def _begin(
        self,
        view: BoxView,
        command_id: str,
        command: CommandLine,
        begin: Callable[[], Awaitable[Process]],
        stdin: bytes | None,
        asked: str,
    ) -> BoxCommand:
        if not await self._begun.begin(view.sid, command_id, kept_s=view.box.last_s - view.record.created_at):
            raise _lost(command_id)
        try:
            process = await begin()
        except BaseException:
            with suppress(ServiceError):  # if this fails, the command counts as lost, and never runs twice
                await asyncio.shield(self._begun.undo(view.sid, command_id))
            raise
        return self._follow(view.sid, command_id, command, process, stdin, asked)

    async def take(
        self, sid: str, command_id: str, command: CommandLine, process: Process, stdin: bytes | None
    ) -> None:
        """Add a session's command that has just started, replacing any with this id. The journal starts each id once.

        Raises:
            StateUnavailable.

        """
        await self._begun.begin(sid, command_id, kept_s=self._bounds.session_s)
        self._known[sid, command_id] = made = asyncio.get_running_loop().create_future()
        made.set_result(self._follow(sid, command_id, command, process, stdin))

    def _follow(
        self,
        sid: str,
        command_id: str,
        command: CommandLine,
        process: Process,
        stdin: bytes | None,
        asked: str = "",
    ) -> BoxCommand:
        running, follower = self._processes.add(sid, process, command)
        begun = BoxCommand(sid, command_id, running, asked)
        self._tasks.start(self._collect(begun, follower))
        if stdin is not None:
            self._tasks.start(_feed(process, stdin))
        return begun

    def _began(self, key: tuple[str, str], done: "asyncio.Future[BoxCommand]") -> None:
        if done.cancelled() or done.exception() is not None:
            del self._known[key]

    async def find(self, sid: str, command_id: str) -> BoxCommand:
        """The command with this id. Raises UnknownCommand, CommandLost, StateUnavailable."""
        if known := self._known.get((sid, command_id)):
            return await asyncio.shield(known)
        if await self._begun.begun(sid, command_id):
            raise _lost(command_id)
        raise UnknownCommand(f"box {sid} has no command {command_id}")

    def delivered(self, command: BoxCommand) -> None:
        """Note that the command's end was delivered: the command is forgotten after `delivered_s`."""
        asyncio.get_running_loop().call_later(self._bounds.delivered_s, self._forget, command)

    async def close(self) -> None:
        """Stop collecting output."""
        tasks = [*self._known.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _collect(self, command: BoxCommand, follower: Follower) -> None:
        streams = {stream: Collector(self._bounds.output_bytes) for stream in Stream}
        try:
            while True:
                piece = await follower.next(_NEXT_S)
                if piece is not None:
                    streams[piece[0]].add(piece[1])
        except (OutputEnded, FollowerTooSlow):
            pass
        finally:
            follower.close()
            command.stdout, command.stderr = streams[Stream.STDOUT].take(), streams[Stream.STDERR].take()
            command.duration_s = time.monotonic() - command.began
            command.over.set()
            self._bytes += command.size
            self._make_room()

    def _make_room(self) -> None:
        """Forget the oldest ended commands until the rest fit into `total_bytes`."""
        for made in list(self._known.values()):
            if self._bytes <= self._bounds.total_bytes:
                return
            if made.done() and made.result().over.is_set():
                self._forget(made.result())

    def _forget(self, command: BoxCommand) -> None:
        key = command.sid, command.command_id
        if (made := self._known.get(key)) and made.done() and made.result() is command:
            del self._known[key]
            self._bytes -= command.size


async def _feed(process: Process, stdin: bytes) -> None:
    try:
        await process.write(stdin)
        await process.close_stdin()
    except ServiceError as error:
        log.warning("a command did not get all of its input", pid=process.pid, error=error.detail)


def _lost(command_id: str) -> CommandLost:
    return CommandLost(
        f"command {command_id} was begun, but how it ended is not known: the server was restarted while it ran, or"
        " it ended long ago; check what it should have changed"
    )
