"""OpenEnv's websockets: each message becomes a request to our own HTTP routes, through all of the server's layers.

So a message is authorized, counted, bounded and forwarded to the session's node like any request. A session that a
websocket started ends with the websocket, unless the server is restarting (close code 1012). A session that the
websocket was attached to stays.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request, WebSocket, WebSocketDisconnect
from starlette.types import Message, Scope

from sandbox_server.errors import MalformedRequest, RequestTooLarge
from sandbox_server.protocols import _agents as agents
from sandbox_server.protocols._background import spawn
from sandbox_server.protocols._wire import json_in
from sandbox_server.protocols.openenv import wire
from sandbox_server.telemetry import logger

log = logger(__name__)

T = TypeVar("T")

_CAPACITY, _IDLE, _RESTART = 1013, 1001, 1012
"""Close codes: no room; no message for too long; the server is restarting."""
_KEPT_HEADERS = frozenset((b"authorization", b"x-api-key", b"host", b"sandbox-run", b"traceparent"))

ROUTER = APIRouter(prefix="/openenv", include_in_schema=False)


@ROUTER.websocket("/ws")
async def serve(websocket: WebSocket) -> None:
    """Serve a websocket whose `reset` names an instance; with `?session_id=` attach it to that session."""
    await _served(_Socket(websocket, sid=websocket.query_params.get("session_id", "")))


@ROUTER.websocket("/instances/{instance_id:path}/ws")
async def serve_instance(websocket: WebSocket, instance_id: str) -> None:
    """Serve a websocket whose `reset` starts this instance unless it names another one."""
    await _served(_Socket(websocket, instance=instance_id))


@ROUTER.websocket("/sessions/{sid}/ws")
async def serve_session(websocket: WebSocket, sid: Annotated[str, Path(pattern="^[0-9]{1,19}$")]) -> None:
    """Serve a websocket that is attached to a session: it neither starts nor ends one."""
    await _served(_Socket(websocket, sid=sid))


async def _served(socket: "_Socket") -> None:
    agents.check_origin(socket.websocket)
    await socket.websocket.accept()
    async with _counted(socket.websocket) as has_room:
        if not has_room:
            await socket.send(wire.failed("CAPACITY_REACHED", "SANDBOX_OPENENV_CONNECTIONS websockets are open"))
            await socket.close(_CAPACITY)
            return
        await socket.run()


@asynccontextmanager
async def _counted(websocket: WebSocket) -> AsyncIterator[bool]:
    """Count one more websocket during the block; yields False, and counts nothing, if there is no room."""
    state = websocket.app.state
    state.openenv_open = getattr(state, "openenv_open", 0)
    if state.openenv_open >= agents.bounds_of(websocket).openenv_connections:
        yield False
        return
    state.openenv_open += 1
    try:
        yield True
    finally:
        state.openenv_open -= 1


class _Socket:
    """One websocket and its session."""

    def __init__(self, websocket: WebSocket, *, instance: str = "", sid: str = "") -> None:
        """`instance`: the default of `reset`. `sid`: the session to attach to."""
        self.websocket = websocket
        self._instance = instance
        self._sid = sid
        self._attached = bool(sid)
        self._messages: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        self._gone = asyncio.Event()
        self._close_code = 0

    async def run(self) -> None:
        """Answer messages until the websocket ends; then end its session."""
        reading = asyncio.create_task(self._read())
        try:
            while (text := await self._next()) is not None:
                reply = await self._while_there(self._answer(text))
                if reply is None:
                    break
                await self.send(reply)
            await self.close()
        finally:
            reading.cancel()
            if self._close_code != _RESTART:
                await asyncio.shield(spawn(self._request, self._end()))

    async def _read(self) -> None:
        """Receive messages while the last one is being answered, so that a disconnect is noticed at once."""
        while True:
            message = await self.websocket.receive()
            if message["type"] == "websocket.disconnect":
                self._close_code = int(message.get("code") or 0)
                self._gone.set()
                return
            text = message.get("text")
            await self._messages.put(text if isinstance(text, str) else message["bytes"].decode(errors="replace"))

    async def _next(self) -> str | None:
        """The next message; None: the client has disconnected, or sent nothing for SANDBOX_OPENENV_IDLE_S."""
        idle_s = agents.bounds_of(self.websocket).openenv_idle_s
        try:
            async with asyncio.timeout(idle_s):
                return await self._while_there(self._messages.get())
        except TimeoutError:
            await self.send(wire.failed("SESSION_ERROR", f"no message came for {idle_s:g} s; the session has ended"))
            await self.close(_IDLE)
            return None

    async def _while_there(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`. If the client disconnects first, cancel `work` and return None."""
        working, leaving = asyncio.create_task(work), asyncio.create_task(self._gone.wait())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            leaving.cancel()

    async def _answer(self, text: str) -> Mapping[str, object] | None:
        """The reply to a message; None: it is `close`."""
        try:
            message = await json_in(text.encode(errors="replace"))
        except (MalformedRequest, RequestTooLarge) as error:
            return wire.failed("INVALID_JSON", error.detail)
        match message:
            case {"type": "reset", **rest}:
                return await self._reset(rest.get("data", {}))
            case {"type": "step", "data": dict(action)}:
                return await self._step(action)
            case {"type": "state"}:
                query = urlencode({"sid": self._sid})
                return _as("state", *await self._ask("GET", "/openenv/state", query=query))
            case {"type": "close"}:
                return None
            case {"type": "reset" | "step"}:
                return wire.failed("VALIDATION_ERROR", "data must be an object")
        return wire.failed("UNKNOWN_TYPE", "a message has a type: reset, step, state or close")

    async def _reset(self, data: object) -> Mapping[str, object]:
        if not isinstance(data, dict):
            return wire.failed("VALIDATION_ERROR", "data must be an object")
        if self._attached:
            body: dict[str, object] = {"sid": self._sid}
        else:
            await self._end()
            body = {"instance": data.get("instance", self._instance or None), "after": data.get("after")}
        status, answer = await self._ask("POST", "/openenv/reset", body)
        if status == 200 and not self._attached:
            self._sid = answer["metadata"]["sid"]
        return _as("observation", status, answer)

    async def _step(self, action: dict[str, Any]) -> Mapping[str, object]:
        if not self._sid:
            return wire.failed("SESSION_ERROR", "there is no episode: send reset first")
        status, answer = await self._ask("POST", "/openenv/step", {"sid": self._sid, "action": action})
        return _as("observation", status, answer)

    async def _end(self) -> None:
        """End the session that this websocket started, if any; no effect on a session that has ended."""
        if self._sid and not self._attached:
            sid, self._sid = self._sid, ""
            status, _ = await self._ask("POST", "/postprocess", {"sid": sid})
            log.info("session of a websocket ended", sid=sid, status=status)

    async def send(self, message: Mapping[str, object]) -> None:
        """Send a message, unless the client has disconnected."""
        if not self._gone.is_set():
            # ASCII only, as in every response: a lone surrogate has no encoding
            await self._unless_gone(self.websocket.send_text(json.dumps(message)))

    async def close(self, code: int = 1000) -> None:
        """Close the websocket, unless it is closed."""
        if not self._gone.is_set():
            await self._unless_gone(self.websocket.close(code))

    async def _unless_gone(self, sending: Any) -> None:
        try:
            await sending
        except (RuntimeError, WebSocketDisconnect):  # it has been closed meanwhile
            self._gone.set()

    @property
    def _request(self) -> Request:
        """The websocket's scope as a request, for functions that need one."""
        return Request({**self.websocket.scope, "type": "http"})

    async def _ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, query: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Send a request to this server with the websocket's API key; returns the status and the JSON answer."""
        content = b"" if body is None else json.dumps(body).encode()
        asked, status, parts = False, 500, list[bytes]()

        async def receive() -> Message:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": content, "more_body": False}
            if path == "/postprocess":  # must run to its end although the client has disconnected
                await asyncio.Event().wait()
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self.websocket.app(self._scope(method, path, query, len(content)), receive, send)
        answer = json.loads(b"".join(parts) or b"{}")
        return status, answer if isinstance(answer, dict) else {}

    def _scope(self, method: str, path: str, query: str, length: int) -> Scope:
        ours = self.websocket.scope
        headers = [pair for pair in ours["headers"] if pair[0] in _KEPT_HEADERS]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(length).encode())]
        headers.append((b"idempotency-key", secrets.token_hex(16).encode()))
        return {
            "type": "http",
            "asgi": ours["asgi"],
            "http_version": "1.1",
            "method": method,
            "scheme": "https" if ours.get("scheme") == "wss" else "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": ours.get("root_path", ""),
            "headers": headers,
            "client": ours.get("client"),
            "server": ours.get("server"),
            "state": ours.get("state", {}),
        }


def _as(kind: str, status: int, answer: Mapping[str, object]) -> Mapping[str, object]:
    return {"type": kind, "data": answer} if status == 200 else wire.error(status, answer)
