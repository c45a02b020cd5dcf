"""Commands (with separate stdout and stderr) and files in a box or a session."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tarfile
import tempfile
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from sandbox_client.errors import BadAnswer, CallTimedOut, CommandFailed, CommandTimedOut, UnknownBlob
from sandbox_client.transport import Request, Transport, json_object

_WAIT_S = 50.0  # longest wait of one request; below the limits of the service and of balancers
_SLACK_S = 60.0  # added to a wait for the transfer of the answer
_FILE_S = 600.0
_CHUNK = 1 << 20
_BLOB_BYTES = 1 << 20
"""Content of this size or more is uploaded once per host as a blob, and copied from it."""


@dataclass(frozen=True)
class CommandResult:
    """Result of a command; invalid UTF-8 in its output is replaced."""

    exit_code: int
    """-1: ended by a signal."""
    stdout: str
    stderr: str
    duration_s: float


@dataclass(frozen=True)
class FileInfo:
    """Metadata of a file or folder."""

    name: str
    path: str
    """Absolute."""
    kind: str
    """file, dir, other, or symlink for a dangling link; other links have the kind of their target."""
    size: int
    mode: int
    """Permission bits."""
    owner: str
    group: str
    mtime: float
    """Unix seconds."""
    target: str | None
    """A link's target."""


class Inside:
    """Commands and files of one sandbox. Belongs to one event loop."""

    notice = ""
    """The service's latest notice about the session, for instance that it was restored on another host."""

    def __init__(self, transport: Transport, sid: str, *, retry_s: float) -> None:
        """`retry_s`: how long a call is retried while the service is unavailable."""
        self._transport = transport
        self._retry_s = retry_s
        self.sid = sid

    async def run(
        self,
        cmd: str | Sequence[str],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float | None = None,
        stdin: str | None = None,
    ) -> CommandResult:
        """Run a command to its end: a string in a login shell, a list as argv. It runs once even if it is resent.

        Raises:
            CommandTimedOut: it exceeded `timeout_s`. CommandLost, SandboxLost, UnknownSession.
        """
        give_up_s = None if timeout_s is None else timeout_s + _SLACK_S
        result = await self.run_within(cmd, give_up_s, user=user, env=env, cwd=cwd, timeout_s=timeout_s, stdin=stdin)
        if result is None:
            raise CallTimedOut(f"the service did not report the end of a command with a limit of {timeout_s:g} s")
        return result

    async def run_within(
        self,
        cmd: str | Sequence[str],
        within_s: float | None,
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_s: float | None = None,
        stdin: str | None = None,
    ) -> CommandResult | None:
        """As `run`, but None if it is still running after `within_s`; then it continues until its own `timeout_s`."""
        wanted: dict[str, Any] = {"cmd": cmd} if isinstance(cmd, str) else {"argv": list(cmd)}
        given = {"user": user, "env": dict(env or {}) or None, "cwd": cwd, "timeout_s": timeout_s, "stdin": stdin}
        wanted.update({name: value for name, value in given.items() if value is not None})
        until = None if within_s is None else time.monotonic() + within_s
        path, key = f"/v1/boxes/{self.sid}/commands", uuid.uuid4().hex
        wait_s = _wait_s(until)
        told = await self._post(path, {**wanted, "wait_s": wait_s}, timeout_s=wait_s + _SLACK_S, key=key)
        while told.get("state") == "running":
            wait_s = _wait_s(until)
            if until is not None and wait_s <= 0:
                return None
            waiting = Request("GET", f"{path}/{key}", params={"wait_s": f"{wait_s:g}"})
            told = json_object(await self._send(waiting, timeout_s=wait_s + _SLACK_S), path)
        self._hear(told)
        return _result(told, timeout_s)

    async def write(self, path: str, content: bytes | Path, *, user: str | None = None) -> None:
        """Write a file, creating missing folders. A `Path` is a local file. Large content is sent once per host.

        Raises:
            RequestRejected: `file_unusable`; for a session also `session_ended`.
        """
        body = await asyncio.to_thread(_if_small, content)
        if body is None:
            await self._copy(path, content, user)
            return
        put = Request(
            "PUT", f"/v1/boxes/{self.sid}/files", body, idempotency_key=uuid.uuid4().hex, params=_params(path, user)
        )
        self._hear(json_object(await self._send(put, timeout_s=_FILE_S), "files"))

    async def write_tree(self, path: str, folder: Path, *, user: str | None = None) -> None:
        """Copy what is in a local folder into `path`, which is made if it is missing; needs tar in the sandbox.

        Raises:
            CommandFailed: it cannot be unpacked there. RequestRejected: `file_unusable`.
        """
        packed = f"/tmp/.{uuid.uuid4().hex}.tar"
        with tempfile.TemporaryDirectory() as place:
            local = Path(place, "tree.tar")
            await asyncio.to_thread(_pack, folder, local)
            await self.write(packed, local, user=user)
        unpack = 'mkdir -p "$2" && tar -xf "$1" -C "$2" --no-same-owner && rm -f "$1"'
        done = await self.run(["bash", "-c", unpack, "bash", packed, path], user=user)
        if done.exit_code != 0:
            raise CommandFailed(f"{folder} cannot be unpacked at {path}: {done.stderr}", exit_code=done.exit_code)

    async def read(self, path: str, *, user: str | None = None) -> bytes:
        """Read a file. Raises UnknownFile."""
        get = Request("GET", f"/v1/boxes/{self.sid}/files", params=_params(path, user))
        return (await self._send(get, timeout_s=_FILE_S)).content

    async def stat(self, path: str, *, user: str | None = None) -> FileInfo:
        """Metadata of a file or folder. Raises UnknownFile."""
        get = Request("GET", f"/v1/boxes/{self.sid}/files/info", params=_params(path, user))
        return _info(json_object(await self._send(get, timeout_s=_SLACK_S), "files/info"))

    async def list(self, path: str, *, user: str | None = None, depth: int = 1) -> Sequence[FileInfo]:
        """Contents of a folder down to `depth`, sorted. Raises UnknownFile; RequestRejected: not a folder."""
        params = {**_params(path, user), "depth": str(depth)}
        answer = await self._send(Request("GET", f"/v1/boxes/{self.sid}/files/list", params=params), timeout_s=_SLACK_S)
        try:
            return [_info(entry) for entry in answer.json()]
        except ValueError as error:
            raise BadAnswer(f"the answer to a listing cannot be read: {error}") from None

    def _hear(self, answer: Mapping[str, Any]) -> None:
        if notice := answer.get("notice"):
            self.notice = str(notice)

    async def _copy(self, path: str, file: Path | bytes, user: str | None) -> None:
        """Write content from the host's blob store; upload it first if missing, one box at a time."""
        sha256 = await asyncio.to_thread(_digest, file)
        wanted = {"sha256": sha256, "path": path} | ({"user": user} if user else {})
        target = f"/v1/boxes/{self.sid}/files/from-blob"
        try:
            self._hear(await self._post(target, wanted, timeout_s=_FILE_S))
            return
        except UnknownBlob:
            pass
        async with _sending(sha256):
            try:
                await self._post(target, wanted, timeout_s=_FILE_S)  # another box may have uploaded it meanwhile
            except UnknownBlob:
                params = {"box": self.sid}
                blob = Request("PUT", f"/v1/blobs/{sha256}", lambda: _chunks(file), params=params)
                await self._send(blob, timeout_s=_FILE_S)
                await self._post(target, wanted, timeout_s=_FILE_S)

    async def _post(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float, retry_s: float | None = None, key: str = ""
    ) -> dict[str, Any]:
        request = Request("POST", path, json.dumps(body).encode("ascii"), "application/json", key)
        return json_object(await self._send(request, timeout_s=timeout_s, retry_s=retry_s), path)

    async def _send(self, request: Request, *, timeout_s: float, retry_s: float | None = None) -> httpx.Response:
        retry_s = self._retry_s if retry_s is None else retry_s
        return await self._transport.send(request, timeout_s=timeout_s + retry_s, retry_s=retry_s)


def _wait_s(until: float | None) -> float:
    return _WAIT_S if until is None else max(0.0, min(_WAIT_S, until - time.monotonic()))


def _result(told: Mapping[str, Any], timeout_s: float | None) -> CommandResult:
    """Parse an ended command. Raises CommandTimedOut, BadAnswer."""
    try:
        stdout, stderr = str(told["stdout"]), str(told["stderr"])
        if told["timed_out"]:
            raise CommandTimedOut(f"the command ran past its limit of {timeout_s:g} s", stdout=stdout, stderr=stderr)
        return CommandResult(int(told["exit_code"]), stdout, stderr, float(told["duration_s"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"the answer to a command is malformed: {error}") from None


_DIGESTS: dict[tuple[str, int, int], str] = {}
_SENDING: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = weakref.WeakKeyDictionary()


def _sending(sha256: str) -> asyncio.Lock:
    """Lock per event loop and content, so that only one box at a time uploads it."""
    return _SENDING.setdefault(asyncio.get_running_loop(), {}).setdefault(sha256, asyncio.Lock())


def _params(path: str, user: str | None) -> dict[str, str]:
    return {"path": path} | ({"user": user} if user else {})


def _info(entry: Mapping[str, Any]) -> FileInfo:
    try:
        named = {name: entry[name] for name in FileInfo.__dataclass_fields__}
        return FileInfo(**{**named, "mode": int(str(named["mode"]), 8)})
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"the description of a file is malformed: {error}") from None


def _if_small(content: Path | bytes) -> bytes | None:
    if isinstance(content, bytes):
        return content if len(content) < _BLOB_BYTES else None
    return content.read_bytes() if content.stat().st_size < _BLOB_BYTES else None


def _pack(folder: Path, into: Path) -> None:
    with tarfile.open(into, "w") as tar:
        tar.add(folder, arcname=".")


def _digest(file: Path | bytes) -> str:
    """SHA-256 of the content; cached for files by path, mtime and size."""
    if isinstance(file, bytes):
        return hashlib.sha256(file).hexdigest()
    facts = file.stat()
    key = (str(file.resolve()), facts.st_mtime_ns, facts.st_size)
    if key not in _DIGESTS:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        _DIGESTS[key] = digest.hexdigest()
    return _DIGESTS[key]


async def _chunks(file: Path | bytes) -> AsyncIterator[bytes]:
    if isinstance(file, bytes):
        yield file
        return
    with file.open("rb") as stream:
        while chunk := await asyncio.to_thread(stream.read, _CHUNK):
            yield chunk
