"""Commands that an earlier server started. They keep running in their boxes; this server can find and end them.

What they write, and their exit status, is lost.
"""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Collection
from dataclasses import asdict
from typing import Protocol

from sandbox_server import clock
from sandbox_server.boxes.command import CommandLine
from sandbox_server.errors import SandboxPaused
from sandbox_server.sandbox.base import ExecResult, ProcessEnd, Sandbox, Size, Stream

LOOK_EVERY_S = 2.0
"""Interval between checks whether an orphan still runs."""
_EXEC_S = 20.0
_SLACK_S = 2.0
"""Allowed difference between a process's start time and the noted one; beyond it the process id was reused."""

# $@: process ids. Prints for each running one: id, start time and uptime, both in ticks.
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
_TICKS = 100  # per second; USER_HZ in /proc on every Linux that Docker runs on


class CommandNotes(Protocol):
    """Storage for notes on running commands; implemented in `state.boxes`."""

    async def note_command(self, sid: str, pid: int, text: str) -> None:
        """Note a running command."""
        ...

    async def forget_command(self, sid: str, pid: int) -> None:
        """Remove the note of an ended command."""
        ...

    async def commands(self, sid: str) -> dict[int, str]:
        """Process id -> note."""
        ...


def note_json(command: CommandLine, began_at: float) -> str:
    """The note, as JSON, on a command that started at `began_at` (Unix seconds)."""
    return json.dumps({**asdict(command), "argv": list(command.argv), "began_at": began_at})


class Orphan:
    """A `sandbox.base.Process` for a process that an earlier server started."""

    def __init__(self, sandbox: Sandbox, pid: int) -> None:
        self.pid = pid
        self._sandbox = sandbox
        self._gone = asyncio.Event()

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Yield nothing; return when the process has ended."""
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
            return bool(await process_ages(self._sandbox, [self.pid]))
        except SandboxPaused:
            return True

    async def wait(self) -> ProcessEnd:
        """Its end, with exit code -1: the real one is unknown."""
        await self._gone.wait()
        return ProcessEnd(-1, error="how it ended was not seen: the server restarted while it ran")

    async def write(self, data: bytes) -> None:
        """Raise BrokenPipeError: its stdin closed with the server that started it."""
        raise BrokenPipeError(32, "the server restarted: the command's input is closed")

    async def close_stdin(self) -> None:
        """Do nothing: it is already closed."""

    async def signal(self, number: int) -> bool:
        """Send a signal; False: the process has ended."""
        done = await self._kill(f"-{number}", str(self.pid))
        # after SIGKILL a busy machine may show it for some ms more, and the next check would be 2 s later
        if done.exit_code == 0 and (number == signal.SIGKILL or not await process_ages(self._sandbox, [self.pid])):
            self._gone.set()
        return done.exit_code == 0

    async def resize(self, size: Size) -> None:
        """Do nothing: its terminal closed with the server that started it."""

    async def kill_tree(self) -> None:
        """Kill it and its process group."""
        await self._kill("-KILL", str(self.pid), f"-{self.pid}")
        self._gone.set()

    def detach(self) -> None:
        """Do nothing: no output is read."""

    async def _kill(self, *words: str) -> ExecResult:
        return await self._sandbox.exec(["bash", "-c", 'kill "$@"', "kill", *words], timeout_s=_EXEC_S)


async def process_ages(sandbox: Sandbox, pids: list[int]) -> dict[int, float]:
    """Process id -> age in seconds, for the running ones of `pids`."""
    if not pids:
        return {}
    done = await sandbox.exec(["bash", "-c", _AGES, "ages", *map(str, pids)], timeout_s=_EXEC_S)
    lines = map(_AGE.fullmatch, done.stdout.text().splitlines())  # untrusted: the policy may have replaced bash
    asked = frozenset(map(str, pids))
    return {int(line[1]): (int(line[3]) - int(line[2])) / _TICKS for line in lines if line and line[1] in asked}


async def surviving_commands(
    notes: CommandNotes, sid: str, sandbox: Sandbox, known: Collection[int]
) -> list[tuple[Orphan, CommandLine, float]]:
    """Noted commands, except `known`, that still run, with their start times; notes of the others are removed.

    Raises:
        ServiceError.

    """
    texts = {pid: text for pid, text in (await notes.commands(sid)).items() if pid not in known}
    living = await process_ages(sandbox, list(texts))
    now = clock.now()
    found = []
    for pid, text in texts.items():
        try:
            fields = json.loads(text)
            began_at = float(fields.pop("began_at"))
            command = CommandLine(**fields)
        except (ValueError, TypeError, KeyError, AttributeError):  # written by a newer server, or truncated
            await notes.forget_command(sid, pid)
            continue
        if pid in living and abs((now - living[pid]) - began_at) < _SLACK_S + LOOK_EVERY_S:
            found.append((Orphan(sandbox, pid), command, began_at))
        else:
            await notes.forget_command(sid, pid)
    return found
