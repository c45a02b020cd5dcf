"""Task sessions through the boxes API: files and commands in a task's sandbox, recorded in the session's journal.

Reads are not recorded. Changes wait for the session's lock like any action, are acknowledged once they are in the
journal, and are replayed if the session is restored on another node.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from sandbox_server.boxes.blobs import Blobs
from sandbox_server.boxes.commands import BoxCommand, Commands
from sandbox_server.errors import (
    ActionInterrupted,
    CommandBroken,
    CommandLost,
    FileUnusable,
    MalformedRequest,
    RequestTooLarge,
    SandboxDiskFull,
    SandboxExhausted,
    SandboxLost,
    ServiceError,
    UnknownBlob,
    UnknownCommand,
    UnknownFile,
    UnknownUser,
)
from sandbox_server.sandbox.base import Sandbox
from sandbox_server.scoring.journals import COMMAND, COMMAND_END, FILE
from sandbox_server.sessions.acting import Acting
from sandbox_server.sessions.ending import SessionEnder
from sandbox_server.state.store import Store

_ERRORS = {
    error.code: error
    for error in (
        ActionInterrupted,
        CommandBroken,
        CommandLost,
        FileUnusable,
        MalformedRequest,
        SandboxDiskFull,
        SandboxExhausted,
        UnknownBlob,
        UnknownCommand,
        UnknownFile,
        UnknownUser,
    )
}
"""Error code -> error that a journaled reply may hold instead of a result."""


class SessionBoxes:
    """Files and commands of sessions that run an instance, on this node.

    Besides what they list, all methods raise UnknownSession, SessionOver, SessionBusy, SessionRestoring (nothing was
    done), OwnedElsewhere, SandboxLost (the session was ended) and InfrastructureError.
    """

    def __init__(
        self, acting: Acting, ending: SessionEnder, store: Store, commands: Commands, blobs: Blobs, *, file_bytes: int
    ) -> None:
        """`file_bytes`: largest file whose bytes the journal stores."""
        self._acting = acting
        self._ending = ending
        self._store = store
        self._commands = commands
        self._blobs = blobs
        self.file_bytes = file_bytes

    async def sandbox(self, sid: str) -> Sandbox:
        """The session's sandbox, for reading."""
        try:
            return await self._acting.sandbox(sid)
        except SandboxLost as error:
            await self._ending.lose(sid, error.detail)
            raise

    async def write(
        self,
        sid: str,
        path: str,
        content: bytes | str,
        *,
        user: str | None,
        mode: str | None,
        key: str = "",
        owner: str = "",
    ) -> dict[str, Any]:
        """Write bytes, or the blob of `owner` with this SHA-256, to a file; returns path, size and session's notice.

        Raises:
            RequestTooLarge: more than `file_bytes`. UnknownBlob, UnknownFile, FileUnusable, UnknownUser,
            MalformedRequest, SandboxDiskFull.

        """
        if isinstance(content, bytes):
            if len(content) > self.file_bytes:
                raise RequestTooLarge(
                    f"a session's journal takes files of {self.file_bytes} bytes at most (SANDBOX_JOURNAL_FILE_MB):"
                    " PUT this one to /v1/blobs/<its SHA-256>, then have it copied (files/from-blob)"
                )
            asked = {"data": base64.b64encode(content).decode()}
        else:
            await self.sandbox(sid)  # raises unless the session is on this node
            self._blobs.size(content, owner)
            asked = {"sha256": content, **({"owner": owner} if owner else {})}
        return await self._act(sid, FILE, {**asked, "path": path, "user": user, "mode": mode}, key)

    async def run(self, sid: str, command_id: str, wanted: Mapping[str, Any]) -> tuple[BoxCommand, str]:
        """The command with this id, started now unless it was before, and the session's notice.

        Raises:
            UnknownUser, MalformedRequest. CommandLost: an earlier server started it.

        """
        reply = await self._act(sid, COMMAND, {**wanted, "id": command_id}, command_id)
        return await self._commands.find(sid, command_id), str(reply["notice"])

    async def find(self, sid: str, command_id: str) -> BoxCommand:
        """The command with this id. Raises UnknownCommand, CommandLost."""
        await self.sandbox(sid)  # on this node, restored if needed
        return await self._commands.find(sid, command_id)

    async def wait(self, command: BoxCommand, wait_s: float) -> str:
        """Wait up to `wait_s` for the command's end, journal it, and return the session's notice; "" if it still runs.

        Raises:
            CommandLost: all processes of the sandbox ended.

        """
        await self._store.touch(command.sid)  # a session with a waiting client is not idle
        try:
            await command.wait(wait_s)
        except SandboxLost as error:  # e.g. the policy killed all processes: the session may continue
            raise CommandLost(f"the command's end is not known: {error.detail}; look at what it should do") from error
        if not command.over.is_set():
            return ""
        asked = {"id": command.command_id} | ({"killed": True} if command.killed else {})
        reply = await self._act(command.sid, COMMAND_END, asked, command.command_id)
        return str(reply["notice"])

    async def _act(self, sid: str, tool: str, asked: Mapping[str, Any], key: str) -> dict[str, Any]:
        content = json.dumps({name: value for name, value in asked.items() if value is not None}, sort_keys=True)
        try:
            answer = await self._acting.work(sid, tool, content, f"{tool}:{key}" if key else "")
        except SandboxLost as error:
            await self._ending.lose(sid, error.detail)
            raise
        return _reply(answer.content)


def _reply(observation: str) -> dict[str, Any]:
    """Parse a journaled reply. Raises the error that it holds instead of a result."""
    try:
        reply: dict[str, Any] = json.loads(observation)
    except ValueError:
        raise MalformedRequest("This Idempotency-Key belongs to an action of another kind; use another key.") from None
    refused = reply.get("error")
    if refused is None:
        return reply
    error: type[ServiceError] = _ERRORS.get(refused["code"], MalformedRequest)
    raise error(str(refused["detail"]))
