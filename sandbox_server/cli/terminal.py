"""A shell in a copy of a session for the person at this terminal: `sandbox-server sessions open`.

The copy is a box. The shell is a process in it, reached by E2B's protocol: one streamed response carries its output,
and each piece of input is a request. So it works wherever other verbs work, also through balancers. The copy ends when
this process exits. It also ends if this process is killed, because its lifetime is short and this process prolongs it.
"""

import asyncio
import base64
import json
import os
import signal
import struct
import termios
import threading
import tty
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import typer

from sandbox_server.cli import api, signalled
from sandbox_server.cli.signalled import SIGNALLED
from sandbox_server.errors import ServiceError
from sandbox_server.insight.sanitize import for_terminal
from sandbox_server.sandbox.bash.boot import STATE

_PER_LIFE = 4  # how many times a copy is prolonged within its lifetime
_CLOSE_S = 10.0
_KEEPALIVE_S = 15
_SILENT_S = 3.0 * _KEEPALIVE_S
"""Silence on the stream of output after which the connection counts as lost."""
_CALL_S = 30.0
_PIECE = 64 << 10
_HEAD = struct.Struct(">BL")
_LAST = 2

_RC = rf"""
__term=$TERM
{STATE}
export TERM=$__term
unset __term PROMPT_COMMAND BASH_ENV
PS1='\[\e[1;33m\](copy)\[\e[0m\] \w\$ '
alias ls='ls --color=auto' grep='grep --color=auto'
"""
_INTERACTIVE = 'exec bash --rcfile <(printf %s "$1") -i'
_SCRIPT = f"{STATE}unset BASH_ENV; exec bash"


class Disconnected(ServiceError):
    """The connection to the shell, or to the person's terminal, is lost."""

    code = "disconnected"


def open_copy(sid: str, at: int | None) -> int:
    """Run a shell in a copy of the session; return its exit code. Without a terminal, stdin is its script.

    Raises:
        NoServer, Disconnected. ServiceError: the server refused; the message is the server's.
    """
    return signalled.run(_open(sid, at))


async def _open(sid: str, at: int | None) -> int:
    async with api.client(_CALL_S) as http:
        asked = {} if at is None else {"at": at}
        told = await api.acall(http, "POST", f"/v1/sessions/{sid}/open", asked, timeout_s=api.TIMEOUT_S)
        copy = _Copy(http, told)
        try:
            if os.isatty(0):
                _say(f"copy {copy.sid} of session {sid} after action {told['at']}; it is gone when you leave")
            if told["notice"]:
                _say(told["notice"])
            return await _attend(copy)
        finally:
            await copy.close()


def _say(text: str) -> None:
    with suppress(OSError):  # a terminal that is gone
        typer.secho(for_terminal(text), err=True, dim=True)


@dataclass(slots=True)
class _Size:
    rows: int
    cols: int

    @classmethod
    def now(cls) -> "_Size":
        cols, rows = os.get_terminal_size(0)
        return cls(rows or 24, cols or 80)


class _Copy:
    """A copy of a session, and the shell in it."""

    def __init__(self, http: httpx.AsyncClient, told: dict[str, Any]) -> None:
        self.sid = str(told["sid"])
        self._life_s = float(told["lifetime_s"])
        self._http = http
        self._access = {"E2b-Sandbox-Id": self.sid, "X-Access-Token": str(told["token"])}
        self._pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def prolong(self) -> None:
        """Keep the copy alive. Returns once it has ended."""
        while True:
            await asyncio.sleep(self._life_s / _PER_LIFE)
            try:
                path = f"/v1/boxes/{self.sid}/lifetime"
                await api.acall(self._http, "POST", path, {"lifetime_s": self._life_s})
            except api.NoServer:
                continue  # it may be restarting
            except ServiceError:
                return  # the shell's stream tells why

    async def close(self) -> None:
        """End the copy. If that fails, it ends with its lifetime."""
        with suppress(ServiceError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await api.acall(self._http, "DELETE", f"/v1/boxes/{self.sid}")

    async def run(self, size: _Size | None) -> int:
        """Run the shell and write its output; return its exit code. `size`: of its terminal; None: it has none."""
        script = ["-c", _SCRIPT] if size is None else ["-c", _INTERACTIVE, "bash", _RC]
        terminal = {"TERM": os.environ.get("TERM") or "xterm"} if size else {}
        asked: dict[str, Any] = {"process": {"cmd": "/bin/bash", "args": script, "envs": terminal}}
        if size is not None:
            asked["pty"] = {"size": {"rows": size.rows, "cols": size.cols}}
        async with aclosing(self._events(asked)) as events:
            async for event in events:
                if "start" in event:
                    self._pid.set_result(event["start"]["pid"])
                elif "data" in event:
                    for stream, text in event["data"].items():
                        await asyncio.to_thread(_write, 2 if stream == "stderr" else 1, base64.b64decode(text))
                elif "end" in event:
                    code = int(event["end"].get("exitCode", 0))
                    return code if code >= 0 else SIGNALLED + signal.SIGKILL
        raise Disconnected("the connection to the copy's shell was cut off")

    async def _events(self, asked: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of the shell, from its start to its end."""
        body = json.dumps(asked).encode()
        headers = {
            **self._access,
            "Content-Type": "application/connect+json",
            "Keepalive-Ping-Interval": str(_KEEPALIVE_S),
        }
        buffer = bytearray()
        try:
            async with self._http.stream(
                "POST",
                "/process.Process/Start",
                content=_HEAD.pack(0, len(body)) + body,
                headers=headers,
                timeout=httpx.Timeout(_CALL_S, read=_SILENT_S),
            ) as answer:
                if answer.is_error:
                    await answer.aread()
                    raise api.refused(answer)
                async for chunk in answer.aiter_bytes():
                    buffer += chunk
                    for flags, content in _frames(buffer):
                        if flags & _LAST:
                            error = content.get("error")
                            if error is not None:
                                raise Disconnected(str(error.get("message") or error.get("code")))
                            return
                        yield content["event"]
        except httpx.TransportError as error:
            raise Disconnected(f"the connection to the copy's shell is lost: {error or type(error).__name__}") from None

    async def feed(self, given: "_Input", *, pty: bool) -> None:
        """Pass input on to the shell until the input ends. Raises Disconnected: the person's terminal is gone."""
        pid = await self._pid
        async for data in given.pieces():
            await self._tell("SendInput", pid, input={"pty" if pty else "stdin": base64.b64encode(data).decode()})
        if pty:
            raise Disconnected("the terminal is gone")
        await self._tell("CloseStdin", pid)

    async def follow_size(self) -> None:
        """Give the shell's terminal the size of this process's terminal whenever that changes."""
        changed = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, changed.set)
        pid = await self._pid
        while True:
            await changed.wait()
            changed.clear()
            size = _Size.now()
            await self._tell("Update", pid, pty={"size": {"rows": size.rows, "cols": size.cols}})

    async def _tell(self, method: str, pid: int, **message: object) -> None:
        try:
            await api.acall(
                self._http,
                "POST",
                f"/process.Process/{method}",
                {"process": {"pid": pid}, **message},
                headers=self._access,
            )
        except api.NoServer as error:
            raise Disconnected(error.detail) from None
        except ServiceError:
            """The shell has just ended; its exit code comes on the stream of output."""


def _frames(buffer: bytearray) -> Iterator[tuple[int, dict[str, Any]]]:
    """Take each complete frame out of the buffer: flags and content."""
    while len(buffer) >= _HEAD.size:
        flags, size = _HEAD.unpack_from(buffer)
        end = _HEAD.size + size
        if len(buffer) < end:
            return
        content = json.loads(bytes(buffer[_HEAD.size : end]))
        del buffer[:end]
        yield flags, content


async def _attend(copy: _Copy) -> int:
    """Connect this process's terminal, or its stdin, to a shell in the copy until the shell ends."""
    on_terminal = os.isatty(0)
    size = _Size.now() if on_terminal else None
    with _raw(0) if on_terminal else nullcontext():
        running = asyncio.create_task(copy.run(size))
        tasks: set[asyncio.Task[Any]] = {
            running,
            asyncio.create_task(copy.prolong()),
            asyncio.create_task(copy.feed(_Input(), pty=on_terminal)),
        }
        if on_terminal:
            tasks.add(asyncio.create_task(copy.follow_size()))
        waiting = set(tasks)
        try:
            while not running.done():
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if not running.done():
                    for task in done:
                        task.result()
            return running.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Put the terminal into raw mode for the block: each key, also Ctrl-C, is read as it is."""
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd)
        yield
    finally:
        with suppress(termios.error):  # it is gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


class _Input:
    """Reads stdin on a daemon thread, so that a read that never returns does not delay the exit."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(16)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        data = b"?"
        while data:
            try:
                data = os.read(0, _PIECE)
            except OSError:  # a terminal that is gone
                data = b""
            with suppress(RuntimeError):  # the loop is closed
                asyncio.run_coroutine_threadsafe(self._pieces.put(data), self._loop).result()

    async def pieces(self) -> AsyncIterator[bytes]:
        """All input since the last piece, joined, because one request per key would lag behind a paste."""
        over = False
        while not over:
            parts = [await self._pieces.get()]
            while parts[-1] and not self._pieces.empty():
                parts.append(self._pieces.get_nowait())
            over = not parts[-1]
            if data := b"".join(parts):
                yield data


def _write(fd: int, data: bytes) -> None:
    """Write all of `data`. Raises Disconnected: nobody reads the output any more."""
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError as error:
        raise Disconnected(f"the output cannot be written: {error.strerror}") from None
