"""Commands of a server that is gone: they live on in their boxes, and the next server can still find and end them.

What they wrote meanwhile is lost, and so is how they end: nobody was there to see it.
"""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Collection
from dataclasses import asdict
from typing import Protocol

from sandbox_server import clock
from sandbox_server.boxes.command import Command
from sandbox_server.errors import SandboxPaused
from sandbox_server.sandbox.base import ExecResult, ProcessEnd, Sandbox, Size, Stream

LOOK_EVERY_S = 2.0
"""At whether an orphan still runs."""
_EXEC_S = 20.0
_SLACK_S = 2.0
"""Between when a process began and when that was noted; an older or younger one is another with its number."""

# $@: process ids. Says of each that runs when it began, in seconds before now.
_AGES = r"""
read -r up _ < /proc/uptime
for p; do
  { read -r line < "/proc/$p/stat"; } 2>/dev/null || continue
  set -- ${line##*) }
  [[ $1 == [ZX] ]] || printf '%s %s %s\n' "$p" "${20}" "${up/./}"
done
"""
_AGE = re.compile(r"([0-9]{1,10}) ([0-9]{1,19}) ([0-9]{1,19})", re.ASCII)
_NOTHING: tuple[tuple[Stream, bytes], ...] = ()
_TICKS = 100  # a second, as /proc counts on every Linux that Docker runs on


class CommandNotes(Protocol):
    """Where the commands of boxes are noted; `state.boxes` is one."""

    async def note_command(self, sid: str, pid: int, text: str) -> None:
        """A command runs."""
        ...

    async def forget_command(self, sid: str, pid: int) -> None:
        """It has ended."""
        ...

    async def commands(self, sid: str) -> dict[int, str]:
        """Those that were noted."""
        ...


def noted(command: Command, began_at: float) -> str:
    """What is kept of a command that began at `began_at`, Unix seconds."""
    return json.dumps({**asdict(command), "argv": list(command.argv), "began_at": began_at})


class Orphan:
    """Implements `sandbox.base.Process` for one that somebody else began."""

    def __init__(self, sandbox: Sandbox, pid: int) -> None:
        self.pid = pid
        self._sandbox = sandbox
        self._gone = asyncio.Event()

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Nothing; ends when it has."""
        while not self._gone.is_set() and await self._lives():
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._gone.wait()
            except TimeoutError:
                continue
        self._gone.set()
        for piece in _NOTHING:
            yield piece

    async def _lives(self) -> bool:
        try:
            return bool(await ages(self._sandbox, [self.pid]))
        except SandboxPaused:
            return True

    async def wait(self) -> ProcessEnd:
        """Its end, of which nothing is known."""
        await self._gone.wait()
        return ProcessEnd(-1, error="how it ended was not seen: the server was started again while it ran")

    async def write(self, data: bytes) -> None:
        """Its stdin went with the server that began it."""
        raise BrokenPipeError(32, "the server was started again: the command's input is closed")

    async def close_stdin(self) -> None:
        """It is closed."""

    async def signal(self, number: int) -> bool:
        """Send it a signal; False: it has ended."""
        done = await self._kill(f"-{number}", str(self.pid))
        # what SIGKILL was sent to may be seen for some ms more on a busy machine, and for 2 s nobody would look again
        if done.exit_code == 0 and (number == signal.SIGKILL or not await ages(self._sandbox, [self.pid])):
            self._gone.set()
        return done.exit_code == 0

    async def resize(self, size: Size) -> None:
        """Its terminal went with the server that began it."""

    async def kill_tree(self) -> None:
        """Kill it and its process group."""
        await self._kill("-KILL", str(self.pid), f"-{self.pid}")
        self._gone.set()

    def detach(self) -> None:
        """Nothing is read of it."""

    async def _kill(self, *words: str) -> ExecResult:
        return await self._sandbox.exec(["bash", "-c", 'kill "$@"', "kill", *words], timeout_s=_EXEC_S)


async def ages(sandbox: Sandbox, pids: list[int]) -> dict[int, float]:
    """How many seconds ago those of them that run began."""
    if not pids:
        return {}
    done = await sandbox.exec(["bash", "-c", _AGES, "ages", *map(str, pids)], timeout_s=_EXEC_S)
    lines = map(_AGE.fullmatch, done.stdout.text().splitlines())  # of a bash that may be the policy's own by now
    asked = frozenset(map(str, pids))
    return {int(line[1]): (int(line[3]) - int(line[2])) / _TICKS for line in lines if line and line[1] in asked}


async def left(
    notes: CommandNotes, sid: str, sandbox: Sandbox, known: Collection[int]
) -> list[tuple[Orphan, Command, float]]:
    """The commands beside the `known` that were noted and still run, and when they began; the others are forgotten.

    Raises:
        ServiceError.

    """
    texts = {pid: text for pid, text in (await notes.commands(sid)).items() if pid not in known}
    living = await ages(sandbox, list(texts))
    now = clock.now()
    found = []
    for pid, text in texts.items():
        try:
            fields = json.loads(text)
            began_at = float(fields.pop("began_at"))
            command = Command(**fields)
        except (ValueError, TypeError, KeyError, AttributeError):  # of a newer server, or cut off: nothing to go by
            await notes.forget_command(sid, pid)
            continue
        if pid in living and abs((now - living[pid]) - began_at) < _SLACK_S + LOOK_EVERY_S:
            found.append((Orphan(sandbox, pid), command, began_at))
        else:
            await notes.forget_command(sid, pid)
    return found
