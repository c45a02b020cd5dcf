"""Sessions by the API of boxes: files and commands in a task's sandbox, each in the session's journal.

Reading is no entry. What changes the sandbox waits its turn like any action, is acknowledged once it is in the journal,
and is done again where the session is made anew on another node.
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
from sandbox_server.sessions.ending import Ending
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
"""What a journaled reply may hold in place of a result."""


class SessionBoxes:
    """Of all sessions that run an instance; those of this node are acted in here.

    Every method raises, beside what it names: UnknownSession, SessionOver, SessionBusy, SessionRestoring: nothing was
    done. OwnedElsewhere. SandboxLost: the session is over with this. InfrastructureError.
    """

    def __init__(
        self, acting: Acting, ending: Ending, store: Store, commands: Commands, blobs: Blobs, *, file_bytes: int
    ) -> None:
        """`file_bytes`: the longest file whose bytes the journal keeps."""
        self._acting = acting
        self._ending = ending
        self._store = store
        self._commands = commands
        self._blobs = blobs
        self.file_bytes = file_bytes

    async def sandbox(self, sid: str) -> Sandbox:
        """To read in."""
        try:
            return await self._acting.sandbox(sid)
        except SandboxLost as error:
            await self._ending.lose(sid, error.detail)
            raise

    async def write(
        self, sid: str, path: str, content: bytes | str, *, user: str | None, mode: str | None, key: str = ""
    ) -> dict[str, Any]:
        """Write bytes, or the blob of this SHA-256, to a file: its path, size and the session's notice.

        Raises:
            RequestTooLarge: more bytes than the journal keeps. UnknownBlob, UnknownFile, FileUnusable, UnknownUser,
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
            await self.sandbox(sid)  # on this node
            self._blobs.size(content)
            asked = {"sha256": content}
        return await self._act(sid, FILE, {**asked, "path": path, "user": user, "mode": mode}, key)

    async def run(self, sid: str, command_id: str, wanted: Mapping[str, Any]) -> tuple[BoxCommand, str]:
        """The command of this id, begun now unless it was before, and the session's notice.

        Raises:
            UnknownUser, MalformedRequest. CommandLost: it was begun by a server that is no more.

        """
        reply = await self._act(sid, COMMAND, {**wanted, "id": command_id}, command_id)
        return await self._commands.find(sid, command_id), str(reply["notice"])

    async def find(self, sid: str, command_id: str) -> BoxCommand:
        """Raises UnknownCommand, CommandLost."""
        await self.sandbox(sid)  # on this node, made anew if need be
        return await self._commands.find(sid, command_id)

    async def wait(self, command: BoxCommand, wait_s: float) -> str:
        """Return when it has ended and that is in the journal, or after `wait_s`; the session's notice.

        Raises:
            CommandLost: all processes of the sandbox ended under it.

        """
        await self._store.touch(command.sid)  # whoever waits for a command is not idle
        try:
            await command.wait(wait_s)
        except SandboxLost as error:  # as when a policy kills all processes: the session may go on
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
    """What was done. Raises the refusal that the journal keeps in its place."""
    try:
        reply: dict[str, Any] = json.loads(observation)
    except ValueError:
        raise MalformedRequest("This Idempotency-Key stands for an action of another kind; take another one.") from None
    refused = reply.get("error")
    if refused is None:
        return reply
    error: type[ServiceError] = _ERRORS.get(refused["code"], MalformedRequest)
    raise error(str(refused["detail"]))
