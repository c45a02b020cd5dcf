"""Commands that know nothing of each other, each in a fresh bash, run in parallel within bounds.

For turns of several tool calls and for `POST /v1/sessions/{sid}/exec`. Nothing persists between commands but files:
`cd` in one moves no other. What the policy can cause (exit codes, a timeout, a folder that is not there) is a result;
so is what keeps one command of many from running. Only what ends them all is raised.
"""

import asyncio
import os
import posixpath
import re
import time
from asyncio import Semaphore, Task
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_server.catalogue.instance import TaskInstance
from sandbox_server.errors import CapacityError, CommandBroken, MalformedRequest, SandboxExhausted
from sandbox_server.sandbox.base import ExecResult, Sandbox
from sandbox_server.telemetry import COMMAND_SECONDS

MAX_COMMAND_BYTES = 100_000
"""Of one command or of its environment: the kernel takes 128 KiB as one argument."""
_BATCH_BYTES = 1 << 20
"""Kept of all streams of a batch: what is journaled must not hold the loop."""
_LONGEST_S = 86_400
_ENV_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a batch."""

    command: str
    """Shell text for `bash -c`."""
    timeout_s: float | None = None
    """None: SANDBOX_EXEC_TIMEOUT_S."""
    cwd: str = ""
    """Relative to the repository; "" is the repository."""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How one command ended."""

    exit_code: int | None
    """None: it was killed at its timeout, or did not run."""
    stdout: str
    """Undecodable bytes replaced; past SANDBOX_EXEC_OUTPUT_BYTES its middle is left out, and marked."""
    stderr: str
    truncated: bool
    timed_out: bool
    """It was killed with all that it began, or its turn did not come in the batch's time (`wall_ms` is 0 then)."""
    wall_ms: float
    queued_ms: float
    """Until it began."""
    error: str = ""
    """Code of what kept it from running: sandbox_exhausted, no_capacity; or command_broken: its end was forged."""


def fault(command: Command) -> str:
    """What is wrong with a command before it runs, "" when nothing is."""
    if not command.command.strip():
        return "the command is empty"
    if "\0" in command.command or "\0" in command.cwd:
        return "the command or its cwd holds a NUL byte, which bash cannot take"
    if len(command.command.encode("utf-8", "replace")) > MAX_COMMAND_BYTES:
        return f"the command is longer than {MAX_COMMAND_BYTES} bytes; write long texts to files in several steps"
    if command.timeout_s is not None and not 0 < command.timeout_s <= _LONGEST_S:
        return f"the timeout must be a number of seconds above 0 and at most {_LONGEST_S}"
    if any(not _ENV_NAME.fullmatch(name) or "\0" in value for name, value in command.env.items()):
        return "env takes names of letters, digits and _, and values without NUL"
    if (
        sum(len(name) + len(value.encode("utf-8", "replace")) for name, value in command.env.items())
        > MAX_COMMAND_BYTES
    ):
        return f"env is longer than {MAX_COMMAND_BYTES} bytes"
    return ""


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """From the settings SANDBOX_EXEC_*."""

    parallel: int = 8
    """Commands of one batch at a time."""
    node_parallel: int | None = None
    """Commands of this node at a time; None: 16 for each CPU, at least 64."""
    commands: int = 64
    """In one batch."""
    timeout_s: float = 60.0
    """For a command that names none."""
    output_bytes: int = 30_000
    """Kept of each stream, half of it from its beginning, half from its end."""


class Batches:
    """Runs batches for all sessions of this node; a session has one action, so one batch, at a time."""

    def __init__(self, bounds: BatchBounds) -> None:
        self.bounds = bounds
        # first come, first served; no batch holds more than its own share of it
        self._node = Semaphore(bounds.node_parallel or max(64, 16 * (os.cpu_count() or 1)))

    def check(self, commands: Sequence[Command], *, longest_s: float) -> None:
        """Raise MalformedRequest for a batch that may not run; `longest_s` bounds a command's own timeout."""
        if not 0 < len(commands) <= self.bounds.commands:
            raise MalformedRequest(f"commands: a batch has 1 to {self.bounds.commands} of them, not {len(commands)}.")
        for number, command in enumerate(commands):
            if why := fault(command):
                raise MalformedRequest(f"commands[{number}]: {why}.")
            if command.timeout_s is not None and command.timeout_s > longest_s:
                raise MalformedRequest(f"commands[{number}]: timeout_s is at most {longest_s:g}.")

    async def run(
        self, sandbox: Sandbox, instance: TaskInstance, commands: Sequence[Command], *, timeout_s: float
    ) -> list[CommandResult]:
        """The results in the order of `commands`, each of them without `fault`; all of it ends after `timeout_s`.

        Raises:
            SandboxLost, EngineUnavailable: none of the results counts; what still ran was killed.

        """
        turns = Semaphore(self.bounds.parallel)
        keep_bytes = min(self.bounds.output_bytes, _BATCH_BYTES // (2 * len(commands) or 1))
        one = _One(sandbox, instance, turns, self._node, time.monotonic(), timeout_s, keep_bytes)
        running = [asyncio.create_task(one.run(command, self.bounds.timeout_s)) for command in commands]
        try:
            return list(await asyncio.gather(*running))
        finally:
            await _stop(running)


async def _stop(running: Sequence[Task[CommandResult]]) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _One:
    """What the commands of a batch have in common."""

    sandbox: Sandbox
    instance: TaskInstance
    turns: Semaphore
    node: Semaphore
    began: float
    timeout_s: float
    keep_bytes: int

    def left_s(self) -> float:
        return self.timeout_s - (time.monotonic() - self.began)

    async def run(self, command: Command, default_s: float) -> CommandResult:
        try:
            async with asyncio.timeout(self.left_s()):
                await self.turns.acquire()
        except TimeoutError:
            return self._result(timed_out=True)  # its own siblings took all the time
        try:
            try:
                async with asyncio.timeout(self.left_s()):
                    await self.node.acquire()
            except TimeoutError:
                return self._result(error=CapacityError.code)
            try:
                return await self._run(command, command.timeout_s or default_s)
            finally:
                self.node.release()
        finally:
            self.turns.release()

    async def _run(self, command: Command, timeout_s: float) -> CommandResult:
        spec = self.instance.sandbox
        queued_s = time.monotonic() - self.began
        COMMAND_SECONDS.labels("queued").observe(queued_s)
        try:
            ran = await self.sandbox.exec(
                argv(command.command, spec.activate),
                timeout_s=max(0.001, min(timeout_s, self.left_s())),
                cwd=posixpath.join(spec.workdir, command.cwd) if command.cwd else spec.workdir,
                env=command.env,
                keep_bytes=self.keep_bytes,
            )
        except (SandboxExhausted, CommandBroken) as error:  # the policy's doing: the batch's others have their results
            return self._result(error=error.code)
        COMMAND_SECONDS.labels("run").observe(ran.duration_s)
        return _result_of(ran, queued_s)

    def _result(self, *, timed_out: bool = False, error: str = "") -> CommandResult:
        """Of a command that did not run."""
        queued_ms = _ms(time.monotonic() - self.began)
        return CommandResult(None, "", "", False, timed_out, 0.0, queued_ms, error)


def argv(command: str, activate: str) -> list[str]:
    """How bash runs `command`; `activate`, where the instance has one, in a shell that then becomes the command's."""
    if not activate:
        return ["bash", "-c", command]
    return ["bash", "-c", f'{activate}\nexec bash -c "$1"', "bash", command]


def _result_of(ran: ExecResult, queued_s: float) -> CommandResult:
    return CommandResult(
        exit_code=None if ran.timed_out else ran.exit_code,
        stdout=ran.stdout.text(),
        stderr=ran.stderr.text(),
        truncated=bool(ran.stdout.dropped or ran.stderr.dropped),
        timed_out=ran.timed_out,
        wall_ms=_ms(ran.duration_s),
        queued_ms=_ms(queued_s),
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
