"""Runs files and commands of a session as journal entries, the first time and when the session is replayed.

Each written file and each started command is an entry; a command's end is another one, written before it is reported.
A replay thus keeps the order and waits where the client waited. Content and reply are JSON; a file's content holds its
bytes or the SHA-256 of a blob.
"""

import base64
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from sandbox_server.actions.base import Observation
from sandbox_server.actions.batch import argv as shell_of
from sandbox_server.boxes import files
from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.command import CommandLine
from sandbox_server.boxes.commands import Commands
from sandbox_server.errors import (
    CommandBroken,
    RequestError,
    SandboxDiskFull,
    SandboxExhausted,
    ServiceError,
)
from sandbox_server.records import SessionRecord
from sandbox_server.scoring.journals import COMMAND, COMMAND_END, FILE
from sandbox_server.sessions.running import ActionOutcome, ActionRun, Runner

USER = "root"
"""User of files and commands that name none, if the instance names none either."""
_REFUSED = (RequestError, SandboxDiskFull, SandboxExhausted, CommandBroken)
"""Errors caused by the request or the policy: the journal stores them as results."""


class SessionWork:
    """Provides `runners` for `Running`; the caller holds the session's lock."""

    def __init__(self, commands: Commands, blobs: Blobs, *, longest_s: float) -> None:
        """`longest_s`: limit on waiting for a command's end, as in a replay."""
        self._commands = commands
        self._blobs = blobs
        self._longest_s = longest_s

    @property
    def runners(self) -> Mapping[str, Runner]:
        """Tool of the journal entry -> its runner."""
        return {FILE: self._write, COMMAND: self._begin, COMMAND_END: self._end}

    async def _write(self, action: ActionRun) -> ActionOutcome:
        asked: dict[str, Any] = json.loads(action.content)
        try:
            sha256, owner = asked.get("sha256"), asked.get("owner", "")
            if sha256 is not None:
                self._blobs.size(sha256, owner)  # before anything is written
            chunks = _whole(base64.b64decode(asked["data"])) if sha256 is None else self._blobs.read(sha256, owner)
            user = asked.get("user", action.instance.sandbox.user or USER)
            info = await files.write(action.sandbox, asked["path"], chunks, user, asked.get("mode"))
        except _REFUSED as error:
            return _failed_outcome(FILE, action.record, error)
        reply = {"path": info.path, "size": info.size}
        return ActionOutcome(Observation(""), FILE, action.record.talk_turns, reply=reply)

    async def _begin(self, action: ActionRun) -> ActionOutcome:
        asked: dict[str, Any] = json.loads(action.content)
        own = action.instance.sandbox
        argv = asked["argv"] if "argv" in asked else shell_of(asked["cmd"], own.activate)
        env, cwd, stdin = asked.get("env", {}), asked.get("cwd", own.workdir), asked.get("stdin")
        try:
            process = await action.sandbox.start(
                argv,
                cwd=cwd,
                env=env,
                user=asked.get("user", own.user or USER),
                stdin=stdin is not None,
                timeout_s=asked.get("timeout_s"),
                home_cwd=True,
            )
        except _REFUSED as error:
            return _failed_outcome(COMMAND, action.record, error)
        told = None if stdin is None else stdin.encode("utf-8", "surrogatepass")
        await self._commands.take(action.record.sid, asked["id"], CommandLine(argv, env=env, cwd=cwd), process, told)
        return ActionOutcome(
            Observation("", outcome="begun"), COMMAND, action.record.talk_turns, reply={"id": asked["id"]}
        )

    async def _end(self, action: ActionRun) -> ActionOutcome:
        asked: dict[str, Any] = json.loads(action.content)
        try:
            command = await self._commands.find(action.record.sid, asked["id"])
        except RequestError as error:
            return _failed_outcome(COMMAND_END, action.record, error)
        if asked.get("killed"):
            await command.running.process.kill_tree()
        await command.wait(self._longest_s)
        end, turns, reply = command.end, action.record.talk_turns, {"id": asked["id"]}
        if end is None:
            return ActionOutcome(Observation("", outcome="running"), COMMAND_END, turns, reply=reply)
        outcome = "killed" if end.timed_out else "finished"
        observation = Observation("", end.exit_code, end.timed_out, outcome)
        return ActionOutcome(observation, COMMAND_END, turns, reply=reply, duration_s=command.duration_s)


def _failed_outcome(tool: str, record: SessionRecord, error: ServiceError) -> ActionOutcome:
    reply = {"error": {"code": error.code, "detail": error.detail}}
    return ActionOutcome(Observation("", outcome=error.code), tool, record.talk_turns, reply=reply)


async def _whole(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data
