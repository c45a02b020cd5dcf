"""Boxes: an image of one's own choice, commands in it, files. `sandbox_client.slime` has slime's sandbox on them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from sandbox_client import environment
from sandbox_client.errors import BadAnswer, CallTimedOut, CommandTimedOut, UnknownBlob, UnknownSession
from sandbox_client.transport import Request, Transport, json_object, parse_host

_WAIT_S = 50.0  # of one request; below the service's own bound, and that of balancers
_SLACK_S = 60.0  # for an answer to come beyond what was waited for
_CREATE_S = 600.0
_FILE_S = 600.0
_CHUNK = 1 << 20
_BLOB_BYTES = 1 << 20
"""Files of this size or more are sent once, by their content, to each host, and copied there."""


@dataclass(frozen=True)
class CommandResult:
    """A command that has ended; its output with what is no UTF-8 replaced."""

    exit_code: int
    """-1: a signal ended it."""
    stdout: str
    stderr: str
    duration_s: float


class Box:
    """One box; `async with` kills it on the way out. Belongs to one event loop."""

    def __init__(
        self,
        image: str,
        *,
        size: str | None = None,
        lifetime_s: float | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        network: str | None = None,
        base_url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        run: str | None = None,
        retry_s: float = 60.0,
    ) -> None:
        """What it will be; nothing is sent before `create`. `base_url` None: SANDBOX_URL; `run` None: SANDBOX_RUN.

        `retry_s`: how long a call is tried again while the service is away. Raises SettingsError.
        """
        urls = environment.base_urls() if base_url is None else [base_url] if isinstance(base_url, str) else base_url
        named = environment.run() if run is None else run
        self._transport = Transport([parse_host(url, api_key) for url in urls], run=named)
        self._retry_s = retry_s
        self._wanted = {
            "image": image,
            "size": size,
            "lifetime_s": lifetime_s,
            "env": dict(env or {}),
            "metadata": dict(metadata or {}),
            "network": network,
        }
        self.sid = ""
        """"" before `create`."""

    async def create(self) -> None:
        """Have it.

        Raises:
            UnknownImage, NoCapacity, and what every call may: Unreachable, CallTimedOut, ServiceFault.
        """
        wanted = {name: value for name, value in self._wanted.items() if value is not None}
        made = await self._post("/v1/boxes", wanted, timeout_s=_CREATE_S, retry_s=_CREATE_S, key=uuid.uuid4().hex)
        if not isinstance(made.get("sid"), str):
            raise BadAnswer("the answer to a create holds no sid")
        self.sid = made["sid"]

    async def kill(self) -> None:
        """End it, with all that runs in it; one that has ended is none the worse."""
        with contextlib.suppress(UnknownSession):
            await self._send(Request("DELETE", f"/v1/boxes/{self.sid}"), timeout_s=_SLACK_S)

    async def aclose(self) -> None:
        """Close the connections; the box lives on."""
        await self._transport.aclose()

    async def __aenter__(self) -> Box:
        try:
            await self.create()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.kill()
        finally:
            await self.aclose()

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
        """Run a command to its end: a text by a login shell, a list as it is. It is run once, however often it is sent.

        Raises:
            CommandTimedOut: it ran past `timeout_s`. CommandLost, SandboxLost, UnknownSession.
        """
        give_up_s = None if timeout_s is None else timeout_s + _SLACK_S
        result = await self.run_within(cmd, give_up_s, user=user, env=env, cwd=cwd, timeout_s=timeout_s, stdin=stdin)
        if result is None:
            raise CallTimedOut(f"the service did not tell the end of a command with a limit of {timeout_s:g} s")
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
        """As `run`; None where it has not ended after `within_s`: it goes on, unless its own `timeout_s` ends it."""
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
        return _result(told, timeout_s)

    async def write(self, path: str, content: bytes | Path, *, user: str | None = None) -> None:
        """Write a file; missing folders are made. A `Path` is a file of this host; a large one is sent once a host."""
        if isinstance(content, Path):
            body = await asyncio.to_thread(_if_small, content)
            if body is None:
                await self._copy(path, content, user)
                return
        else:
            body = content
        params = {"path": path} | ({"user": user} if user else {})
        await self._send(Request("PUT", f"/v1/boxes/{self.sid}/files", body, params=params), timeout_s=_FILE_S)

    async def read(self, path: str, *, user: str | None = None) -> bytes:
        """A file's bytes. Raises UnknownFile."""
        params = {"path": path} | ({"user": user} if user else {})
        answer = await self._send(Request("GET", f"/v1/boxes/{self.sid}/files", params=params), timeout_s=_FILE_S)
        return answer.content

    async def _copy(self, path: str, file: Path, user: str | None) -> None:
        """Have the host write a file that it may hold already; it is sent if not, by one box at a time."""
        sha256 = await asyncio.to_thread(_digest, file)
        wanted = {"sha256": sha256, "path": path} | ({"user": user} if user else {})
        target = f"/v1/boxes/{self.sid}/files/from-blob"
        try:
            await self._post(target, wanted, timeout_s=_FILE_S)
            return
        except UnknownBlob:
            pass
        async with _sending(sha256):
            try:
                await self._post(target, wanted, timeout_s=_FILE_S)  # another box may have sent it meanwhile
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
    """Raises CommandTimedOut, BadAnswer."""
    try:
        stdout, stderr = str(told["stdout"]), str(told["stderr"])
        if told["timed_out"]:
            raise CommandTimedOut(f"the command ran past its limit of {timeout_s:g} s", stdout=stdout, stderr=stderr)
        return CommandResult(int(told["exit_code"]), stdout, stderr, float(told["duration_s"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"the answer to a command is not what was promised: {error}") from None


_DIGESTS: dict[tuple[str, int, int], str] = {}
_SENDING: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = weakref.WeakKeyDictionary()


def _sending(sha256: str) -> asyncio.Lock:
    """Held by the one box of this process and loop that sends the content."""
    return _SENDING.setdefault(asyncio.get_running_loop(), {}).setdefault(sha256, asyncio.Lock())


def _if_small(file: Path) -> bytes | None:
    return file.read_bytes() if file.stat().st_size < _BLOB_BYTES else None


def _digest(file: Path) -> str:
    """SHA-256 of the file's content, read once for as long as it does not change."""
    facts = file.stat()
    key = (str(file.resolve()), facts.st_mtime_ns, facts.st_size)
    if key not in _DIGESTS:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        _DIGESTS[key] = digest.hexdigest()
    return _DIGESTS[key]


async def _chunks(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as stream:
        while chunk := await asyncio.to_thread(stream.read, _CHUNK):
            yield chunk
