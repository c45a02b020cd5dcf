"""Runs independent commands in parallel within limits, each in a fresh bash.

Used for turns of several tool calls and for `POST /v1/sessions/{sid}/exec`. Only files persist between commands: a `cd`
in one does not affect another. Whatever a policy can cause (exit codes, timeouts, a missing folder) is a result, and so
is a fault that prevents a single command. Only faults that end all commands are raised.
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
"""Limit on one command or its environment: the kernel allows 128 KiB per argument."""
_BATCH_BYTES = 1 << 20
"""Limit on the kept output of a batch: journaling more would block the event loop."""
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
    """The result of one command."""

    exit_code: int | None
    """None: it was killed at its timeout, or did not run."""
    stdout: str
    """Undecodable bytes are replaced; past SANDBOX_EXEC_OUTPUT_BYTES the middle is replaced by a mark."""
    stderr: str
    truncated: bool
    timed_out: bool
    """Killed with all its children, or not started within the batch's time (then `wall_ms` is 0)."""
    wall_ms: float
    queued_ms: float
    """Time until it started."""
    error: str = ""
    """Why it did not run: sandbox_exhausted, no_capacity; or command_broken: it ran, but its end was forged."""


def fault(command: Command) -> str:
    """Why a command may not run; "" if it may."""
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
    """Limits from the settings SANDBOX_EXEC_*."""

    parallel: int = 8
    """Concurrent commands of one batch."""
    node_parallel: int | None = None
    """Concurrent commands of this node; None: 16 per CPU, at least 64."""
    commands: int = 64
    """Limit on commands in one batch."""
    timeout_s: float = 60.0
    """Timeout of a command that names none."""
    output_bytes: int = 30_000
    """Bytes kept of each stream, half from its beginning, half from its end."""


class Batches:
    """Runs batches for all sessions of this node; a session runs one action, and so one batch, at a time."""

    def __init__(self, bounds: BatchBounds) -> None:
        self.bounds = bounds
        # first come, first served; each batch is limited to `parallel` of these
        self._node = Semaphore(bounds.node_parallel or max(64, 16 * (os.cpu_count() or 1)))

    def check(self, commands: Sequence[Command], *, longest_s: float) -> None:
        """Raise MalformedRequest for a batch that may not run; `longest_s` limits a command's own timeout."""
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
        """Run the commands, which must pass `fault`; returns results in their order, within `timeout_s` seconds.

        Raises:
            SandboxLost, EngineUnavailable: no result counts; running commands were killed.

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
    """The common parameters of a batch's commands."""

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
            return self._result(timed_out=True)  # the other commands took all of the batch's time
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
                user=spec.user or None,
                keep_bytes=self.keep_bytes,
            )
        except (SandboxExhausted, CommandBroken) as error:  # caused by the policy: other commands keep their results
            return self._result(error=error.code)
        COMMAND_SECONDS.labels("run").observe(ran.duration_s)
        return _result_of(ran, queued_s)

    def _result(self, *, timed_out: bool = False, error: str = "") -> CommandResult:
        """Result of a command that did not run."""
        queued_ms = _ms(time.monotonic() - self.began)
        return CommandResult(None, "", "", False, timed_out, 0.0, queued_ms, error)


def argv(command: str, activate: str) -> list[str]:
    """The argv that runs `command` in bash; `activate` runs first, in a shell that then execs the command's."""
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
