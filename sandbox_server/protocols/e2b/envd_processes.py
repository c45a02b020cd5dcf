"""process.Process: start, follow, feed and end a box's commands, by Connect.

A command belongs to its box, not to the stream that started it: a client's disconnect does not end it; the timeout of
the call that started it kills it and its descendants.
"""

import asyncio
import base64
import signal
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import cast

from fastapi import APIRouter, Request, Response

from sandbox_server.boxes.command import CommandLine, with_path
from sandbox_server.boxes.processes import Follower, FollowerTooSlow, OutputEnded, Processes, Running
from sandbox_server.errors import ServiceError, UnknownProcess, UnknownSession
from sandbox_server.protocols._parts import boxes_of
from sandbox_server.protocols._streamed import Last
from sandbox_server.protocols.e2b import connect
from sandbox_server.protocols.e2b.connect import Code, ConnectError
from sandbox_server.protocols.e2b.envd_call import Call, as_connect, opened, streaming, unary
from sandbox_server.protocols.e2b.process_messages import (
    Input,
    Nothing,
    Selected,
    Selector,
    SendInput,
    SendSignal,
    Start,
    StreamInput,
    Update,
)
from sandbox_server.sandbox.base import ProcessEnd, Size, Stream

ROUTER = APIRouter(include_in_schema=False)

TIMED_OUT = 124
"""Exit code of a command that timed out, if the policy asks for one; as timeout(1)."""

_SERVICE = "/process.Process"
_STREAMS = {Stream.STDOUT: b"stdout", Stream.STDERR: b"stderr", Stream.PTY: b"pty"}
_SIGNALS = {
    "SIGNAL_SIGTERM": signal.SIGTERM,
    "SIGNAL_SIGKILL": signal.SIGKILL,
    15: signal.SIGTERM,
    9: signal.SIGKILL,
}
_KILLED_S = 1.0
"""Seconds to wait for the effect of a SIGKILL, so that a client that lists processes right after it does not see this
one."""
_NUDGE_S = 0.5
"""A keepalive is sent this many seconds before a command's timeout. SDKs before 2.30 wait for the next message only as
long as the timeout, and would give up while the command is being killed."""
_KEEPALIVE = connect.frame(b'{"event":{"keepalive":{}}}')


@streaming(ROUTER, f"{_SERVICE}/Start", Start)
async def start(call: Call, asked: Start) -> Response:
    """Run a command and stream its events."""
    timeout_s = connect.timeout_s(call.request.headers)
    keepalive_s = connect.keepalive_s(call.request.headers)
    policy = boxes_of(call.request).policy
    config = asked.process
    path = call.view.box.image_path if policy.login_path == "image" else ""
    process = await call.sandbox.start(
        [config.cmd, *with_path(config.cmd, config.args, path)],
        cwd=await _folder(call, config.cwd),
        env={**_known(call), **call.view.box.env, **config.envs},
        user=call.user,
        stdin=asked.stdin,
        pty=Size(rows=asked.pty.size.rows, cols=asked.pty.size.cols) if asked.pty else None,
        timeout_s=timeout_s,
        home_cwd=True,
    )
    command = CommandLine(
        [config.cmd, *config.args],
        env=config.envs,
        cwd=config.cwd,
        tag=asked.tag,
        pty=asked.pty is not None,
        stdin=asked.stdin,
    )
    running, follower = processes_of(call.request).add(call.view.sid, process, command)
    return connect.stream(
        _events(call, running, follower, keepalive_s, timeout_s=timeout_s, timeout_exit=policy.timeout_exit)
    )


@streaming(ROUTER, f"{_SERVICE}/Connect", Selected)
async def follow(call: Call, asked: Selected) -> Response:
    """Stream a command's events from now on; the call's timeout ends the stream, not the command."""
    timeout_s = connect.timeout_s(call.request.headers)
    keepalive_s = connect.keepalive_s(call.request.headers)
    running = await _find(call, asked.process, ended=True)
    return connect.stream(_events(call, running, running.follow(), keepalive_s, follow_s=timeout_s))


@unary(ROUTER, f"{_SERVICE}/List", Nothing)
async def list_(call: Call, _: Nothing) -> dict[str, object]:
    """The running commands."""
    processes = processes_of(call.request)
    await processes.adopt(call.view.sid, call.sandbox)
    return {"processes": [_listed(running) for running in processes.listed(call.view.sid)]}


@unary(ROUTER, f"{_SERVICE}/SendSignal", SendSignal)
async def send_signal(call: Call, asked: SendSignal) -> dict[str, object]:
    """Send SIGTERM or SIGKILL."""
    number = _SIGNALS.get(asked.signal)
    if number is None:
        raise ConnectError(Code.UNIMPLEMENTED, f"invalid signal: {asked.signal}")
    running = await _find(call, asked.process)
    if not await running.process.signal(number):
        raise ConnectError(Code.NOT_FOUND, f"process with pid {running.pid} not found; it has ended")
    if number == signal.SIGKILL:
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_S):
                await running.over.wait()
    return {}


@unary(ROUTER, f"{_SERVICE}/SendInput", SendInput)
async def send_input(call: Call, asked: SendInput) -> dict[str, object]:
    """Write to a command's stdin or terminal."""
    await _feed(await _find(call, asked.process), asked.input)
    return {}


@unary(ROUTER, f"{_SERVICE}/CloseStdin", Selected)
async def close_stdin(call: Call, asked: Selected) -> dict[str, object]:
    """Close a command's stdin."""
    running = await _find(call, asked.process)
    if running.command.pty:
        raise ConnectError(Code.UNKNOWN, "cannot close stdin for PTY process — send Ctrl+D (0x04) instead")
    running.stdin_open = False
    await running.process.close_stdin()
    return {}


@unary(ROUTER, f"{_SERVICE}/Update", Update)
async def update(call: Call, asked: Update) -> dict[str, object]:
    """Resize a command's terminal."""
    running = await _find(call, asked.process)
    if asked.pty is not None:
        if not running.command.pty:
            raise ConnectError(Code.INTERNAL, "tty not assigned to process")
        await running.process.resize(Size(rows=asked.pty.size.rows, cols=asked.pty.size.cols))
    return {}


@ROUTER.post(f"{_SERVICE}/StreamInput", response_class=Response)
async def stream_input(request: Request) -> Response:
    """Write to a command, in order, as long as the client sends."""
    running: Running | None = None
    try:
        call = await opened(request)
        async for message in connect.read_stream(request, StreamInput):
            if message.start is not None:
                running = await _find(call, message.start.process)
            elif message.data is not None:
                if running is None:
                    raise ConnectError(Code.INVALID_ARGUMENT, "the first message must name the process")
                await _feed(running, message.data.input)
    except (ConnectError, OSError, ValueError) as error:
        return connect.stream_error(as_connect(error))
    return Response(connect.frame(b"{}") + connect.last_frame(), media_type=connect.STREAM)


def processes_of(request: Request) -> Processes:
    """The processes of this node."""
    return cast(Processes, request.app.state.processes)


def _known(call: Call) -> dict[str, str]:
    """Environment variables by which programs written for E2B recognise their sandbox."""
    return {"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": call.view.sid, "E2B_TEMPLATE_ID": call.view.box.template}


async def _folder(call: Call, cwd: str | None) -> str | None:
    """The absolute working directory; None: the user's home."""
    if not cwd:
        return call.view.box.workdir or None
    try:
        info = await call.sandbox.stat(cwd, user=call.user)
    except FileNotFoundError:
        raise ConnectError(Code.INVALID_ARGUMENT, f"cwd '{cwd}' does not exist") from None
    return info.path


async def _find(call: Call, selector: Selector, *, ended: bool = False) -> Running:
    if selector.pid is None and selector.tag is None:
        raise ConnectError(Code.UNIMPLEMENTED, "name the process by pid or tag")
    processes, sid = processes_of(call.request), call.view.sid
    try:
        return processes.find(sid, pid=selector.pid, tag=selector.tag, ended=ended)
    except UnknownProcess:
        await processes.adopt(sid, call.sandbox)
    return processes.find(sid, pid=selector.pid, tag=selector.tag, ended=ended)


async def _feed(running: Running, given: Input) -> None:
    text = given.pty if running.command.pty else given.stdin
    if text is None:
        wanted = "the pty, not the stdin" if running.command.pty else "the stdin, not the tty"
        raise ConnectError(Code.INTERNAL, f"input of this process should be written to {wanted}")
    if not (running.command.pty or running.stdin_open):
        raise ConnectError(Code.INTERNAL, "error writing to stdin: stdin not enabled or closed")
    try:
        # protobuf's JSON allows both alphabets, with and without padding
        digits = text.replace("-", "+").replace("_", "/").rstrip("=")
        data = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        raise ConnectError(Code.INVALID_ARGUMENT, "input is not base64") from None
    if data:
        await running.process.write(data)


def _listed(running: Running) -> dict[str, object]:
    command = running.command
    config: dict[str, object] = {"cmd": command.argv[0], "args": list(command.argv[1:]), "envs": dict(command.env)}
    if command.cwd is not None:
        config["cwd"] = command.cwd
    shown: dict[str, object] = {"config": config, "pid": running.pid}
    if command.tag is not None:
        shown["tag"] = command.tag
    return shown


async def _events(
    call: Call,
    running: Running,
    follower: Follower,
    keepalive_s: float,
    *,
    follow_s: float | None = None,
    timeout_s: float | None = None,
    timeout_exit: bool | None = None,
) -> AsyncGenerator[bytes, None]:
    """A command's events as frames. `follow_s`: seconds until the stream ends, for a call that only follows.

    `timeout_s`: the command's timeout. `timeout_exit`: the policy's; None for a call that only follows.
    """
    until = None if follow_s is None else time.monotonic() + follow_s
    nudge = None if timeout_s is None else time.monotonic() + max(timeout_s - _NUDGE_S, 0.75 * timeout_s)
    try:
        yield connect.frame(b'{"event":{"start":{"pid":%d}}}' % running.pid)
        while True:
            left = keepalive_s if until is None else min(keepalive_s, until - time.monotonic())
            if left <= 0:
                yield connect.last_frame(ConnectError(Code.DEADLINE_EXCEEDED, "context deadline exceeded"))
                return
            if nudge is not None:
                left = max(0.0, min(left, nudge - time.monotonic()))
            piece = await follower.next(left)
            if nudge is not None and time.monotonic() >= nudge:
                nudge = None
            if piece is not None:
                yield _data(*piece)
            elif until is None or time.monotonic() < until:
                yield _KEEPALIVE
    except FollowerTooSlow:
        yield connect.last_frame(
            ConnectError(Code.RESOURCE_EXHAUSTED, "the output was not taken in time; connect again to follow the rest")
        )
    except OutputEnded:
        yield (
            # E2B's own words: callers may search for them
            _cut("the sandbox was killed or reached its end of life while it ran")
            if await _ended_with_its_box(call, running)
            else _last(running, timeout_exit)
        )
    finally:
        follower.close()


async def _ended_with_its_box(call: Call, running: Running) -> bool:
    """Whether the command was killed by its box's end, which clients distinguish from a command's own end."""
    end = running.end
    if end is not None and (end.signal != signal.SIGKILL or end.timed_out):
        return False
    try:
        return not (await boxes_of(call.request).get(call.view.sid)).live
    except UnknownSession:
        return True
    except ServiceError:
        return False


def _cut(why: str) -> bytes:
    return connect.last_frame(
        ConnectError(Code.UNAVAILABLE, f"the connection to the process ended before it did: {why}")
    )


def _last(running: Running, timeout_exit: bool | None) -> bytes:
    """The last frames of a stream whose command has ended."""
    if running.end is None:
        return _cut(running.fault.detail if running.fault else "the server has dropped it")
    end = running.end
    if end.timed_out and timeout_exit is False:
        return connect.last_frame(ConnectError(Code.DEADLINE_EXCEEDED, "context deadline exceeded"))
    event = connect.dumped({"event": {"end": _ended(end, timeout_exit is True)}})
    return Last(connect.frame(event) + connect.last_frame())


def _ended(end: ProcessEnd, timeout_exit: bool) -> Mapping[str, object]:
    """EndEvent, with the texts of Go's os.ProcessState, which clients may display."""
    if end.timed_out and timeout_exit:
        return {"exitCode": TIMED_OUT, "exited": True, "status": f"exit status {TIMED_OUT}", "error": "timed out"}
    if end.signal is None and end.error:  # nobody saw how it ended
        return {"exitCode": end.exit_code, "exited": end.exit_code >= 0, "status": end.error, "error": end.error}
    if end.exit_code < 0:
        name = (end.signal and signal.strsignal(end.signal)) or str(end.signal)
        status = f"signal: {name.lower()}"
        return {"exitCode": -1, "exited": False, "status": status, "error": status}
    status = f"exit status {end.exit_code}"
    shown: dict[str, object] = {"exitCode": end.exit_code, "exited": True, "status": status}
    if end.exit_code:
        shown["error"] = end.error or status
    return shown


def _data(stream: Stream, data: bytes) -> bytes:
    return connect.frame(b'{"event":{"data":{"%b":"%b"}}}' % (_STREAMS[stream], base64.b64encode(data)))
