"""Proxies HTTP requests for `<port>-<sandbox id>.<domain>` to that port of a box, one connection per request.

A request without such a host name may name the port by the headers E2b-Sandbox-Id and E2b-Sandbox-Port. They work even
if no domain is set, and ids can be guessed, so such a request must carry the box's access token or traffic token. A
request by host name needs the traffic token only if the box's owner made the ports private. Every box has a traffic
token nevertheless, because E2B's code interpreter sends no other token with its requests about contexts.

HTTP/1.1, streamed in both directions. A websocket is passed through byte for byte once the port has agreed to it.
"""

import asyncio
import re
from dataclasses import dataclass

import h11
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandbox_server.boxes.boxes import BoxView
from sandbox_server.boxes.tunnels import PortClosed, Tunnel, Tunnels
from sandbox_server.errors import (
    MalformedRequest,
    RequestError,
    SandboxLost,
    SandboxPaused,
    ServiceError,
    UnknownSession,
)
from sandbox_server.protocols._by_host import RAW, TARGET, TRAFFIC_TOKEN, RawConnection, passed_on, switching
from sandbox_server.protocols._copying import copied, first_of
from sandbox_server.protocols._numbers import whole
from sandbox_server.protocols._parts import boxes_of
from sandbox_server.protocols._traits import Refusal, Trait
from sandbox_server.protocols._wire import json_answer
from sandbox_server.protocols.e2b.access import SANDBOX_ID, TOKEN, BoxGone, is_same, ports_token
from sandbox_server.protocols.e2b.refusals import refuse
from sandbox_server.telemetry import logger

log = logger(__name__)

ENVD_PORT = 49983
"""E2B's envd port; our own routes answer there."""
_HEAD = 1 << 16  # bytes of a response's head
SANDBOX_PORT = "e2b-sandbox-port"
_OURS = frozenset((TRAFFIC_TOKEN.encode(), SANDBOX_ID.encode(), SANDBOX_PORT.encode(), b"sandbox-forwarded"))
_LAST_PORT = 65535
_BODILESS = (204, 304)
_SWITCHING = 101
_LAST_STATUS = 599  # h11 accepts any three digits; our own server sends none above this


@dataclass(frozen=True, slots=True)
class Target:
    """The parsed form of a host name."""

    sid: str
    port: int
    by_headers: bool = False


class TrafficRefused(RequestError):
    """The box accepts no request without its traffic token."""

    code = "traffic_refused"
    http_status = 403


class NoAnswer(ServiceError):
    """Something listens on the port but does not answer in HTTP."""

    code = "no_answer"
    http_status = 502


class TookTooLong(NoAnswer):
    """No data was received for too long."""

    http_status = 504


class Names:
    """Parses host names under `domain`."""

    def __init__(self, domain: str) -> None:
        """`domain`: with or without a port; host names match in both forms. "": there are no names."""
        if not domain:
            self._pattern = re.compile(r"(?!)")
            return
        bare = re.escape(domain.rpartition(":")[0] if ":" in domain else domain)
        self._pattern = re.compile(rf"([0-9]+)-([a-z0-9]+)\.{bare}\.?(?::[0-9]+)?", re.IGNORECASE)

    def read(self, host: str) -> Target | None:
        """The target that `host` names; port 0 if its port is invalid. None: it does not name a box."""
        match = self._pattern.fullmatch(host)
        if match is None:
            return None
        return Target(match[2], whole(match[1], _LAST_PORT) or 0)


def by_headers(headers: Headers) -> Target | None:
    """The port that E2B's headers name; None if they name none, or envd's, which our own routes answer."""
    sid, port = headers.get(SANDBOX_ID, ""), headers.get(SANDBOX_PORT, "")
    number = whole(port, _LAST_PORT) or 0
    return Target(sid, number, by_headers=True) if sid and port and number != ENVD_PORT else None


def _refuse(error: ServiceError, headers: Headers) -> Refusal:
    """The error in the format of E2B's proxy: `{"sandboxId", "message", "code"}`; also `port` if that is at fault."""
    refusal = refuse(error, headers)
    if (named := by_headers(headers)) is not None:
        port, sid = str(named.port), named.sid
    else:
        port, _, sid = headers.get("host", "").partition(".")[0].partition("-")
    body = {"sandboxId": sid, **refusal.body}
    if isinstance(error, PortClosed | NoAnswer) and (number := whole(port, _LAST_PORT)) is not None:
        body["port"] = number
    return Refusal(refusal.status, body, refusal.headers)


TRAIT = Trait(re.compile(""), opens=True, streams=True, refuse=_refuse)


async def answer(request: Request, tunnels: Tunnels, idle_s: float) -> Response:
    """Start the exchange with the port; cut it off when no data has moved for `idle_s` seconds.

    Raises:
        BoxGone, PortClosed, TrafficRefused, MalformedRequest, CapacityError, InfrastructureError.
        OwnedElsewhere: the box is on another node.
    """
    target: Target = request.scope[TARGET]
    if not target.port:
        raise MalformedRequest("Invalid sandbox port")
    boxes = boxes_of(request)
    try:
        if not re.fullmatch("[1-9][0-9]{0,18}", target.sid):
            raise UnknownSession(target.sid)
        view = await boxes.get(target.sid)
        _admit(request, view, target)
        view = await boxes.awake(view)
        sandbox = await boxes.sandbox(view)
        head = _head(request, view, target)
        tunnel = await tunnels.open(view.sid, sandbox, target.port)
    except (UnknownSession, SandboxLost, SandboxPaused):
        raise BoxGone(target.sid) from None
    return _Exchange(tunnel, head, target, idle_s, request.scope.get(RAW))


def _admit(request: Request, view: BoxView, target: Target) -> None:
    own, offered = view.box.traffic_token, request.headers.get(TRAFFIC_TOKEN, "")
    known = is_same(request.headers.get(TOKEN, ""), view.box.token) or is_same(offered, ports_token(view))
    if target.by_headers and not own and not known:
        raise TrafficRefused(
            "A request that names its sandbox by headers needs the sandbox's access token, X-Access-Token, or its"
            f" traffic token, {TRAFFIC_TOKEN}"
        )
    if own and not offered:
        raise TrafficRefused(f"Sandbox is secured with traffic access token. Token header '{TRAFFIC_TOKEN}' is missing")
    if own and not is_same(offered, own):
        raise TrafficRefused(
            f"Sandbox is secured with traffic access token. Provided token in header '{TRAFFIC_TOKEN}' is invalid"
        )


def _head(request: Request, view: BoxView, target: Target) -> h11.Request:
    """The request as sent to the port. Raises MalformedRequest."""
    scope = request.scope
    headers = [(name, value) for name, value in passed_on(scope["headers"]) if name not in _OURS]
    if target.by_headers:  # the access token opens envd, which programs in the box must not use
        headers = [(name, value) for name, value in headers if name != TOKEN.encode()]
    if view.box.host_mask:
        mask = view.box.host_mask.replace("${PORT}", str(target.port)).encode()
        headers = [(name, mask if name == b"host" else value) for name, value in headers]
    if "transfer-encoding" in request.headers:
        headers = [(name, value) for name, value in headers if name != b"content-length"]
        headers.append((b"transfer-encoding", b"chunked"))
    if RAW in scope:
        headers += [(b"upgrade", b"websocket"), (b"connection", b"Upgrade")]
    else:
        headers.append((b"connection", b"close"))
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    try:
        return h11.Request(
            method=scope["method"],
            target=path + (b"?" + query if query else b""),
            headers=[
                (name.title(), value) for name, value in headers
            ],  # as E2B's proxy; some programs expect this case
        )
    except h11.LocalProtocolError as error:
        raise MalformedRequest(f"the request cannot be forwarded: {error}") from None


class _Exchange(Response):
    """One request to a port and its response, streamed; called once."""

    def __init__(
        self, tunnel: Tunnel, head: h11.Request, target: Target, idle_s: float, raw: RawConnection | None
    ) -> None:
        """`raw`: the client's connection, if it asks for a websocket."""
        super().__init__()
        self._raw = raw
        self._tunnel = tunnel
        self._head = head
        self._target = target
        self._idle_s = idle_s
        self._wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD)
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        try:
            await self._bounded(receive, send)
        except (h11.RemoteProtocolError, ServiceError, TimeoutError) as error:
            if self._begun:  # the client sees a response that ends early
                log.info(
                    "a port's response was cut off", sid=self._target.sid, port=self._target.port, error=str(error)
                )
                return
            refusal = _refuse(self._error(error), Headers(scope=scope))
            await json_answer(dict(refusal.body), refusal.status, dict(refusal.headers))(scope, receive, send)
        finally:
            await self._tunnel.close()

    def _error(self, error: Exception) -> ServiceError:
        if isinstance(error, TimeoutError):
            return TookTooLong(f"port {self._target.port} answered nothing for {self._idle_s:g} s")
        if isinstance(error, ServiceError):
            return BoxGone(self._target.sid)
        return NoAnswer(f"what listens on port {self._target.port} did not answer in HTTP/1.1: {error}")

    async def _bounded(self, receive: Receive, send: Send) -> None:
        async with asyncio.timeout(self._idle_s) as bound:
            asking = asyncio.create_task(self._ask(receive, bound))
            telling = asyncio.create_task(self._tell(send, bound))
            try:
                await asyncio.wait({asking, telling}, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    asking.result()  # otherwise the client has disconnected
                if telling.done():
                    telling.result()
            finally:
                for task in (asking, telling):
                    task.cancel()
                await asyncio.gather(asking, telling, return_exceptions=True)

    def _stir(self, bound: asyncio.Timeout) -> None:
        if not bound.expired():
            bound.reschedule(asyncio.get_running_loop().time() + self._idle_s)

    async def _ask(self, receive: Receive, bound: asyncio.Timeout) -> None:
        """Send the request, then wait; return once the client has disconnected."""
        await self._write(self._head)
        names = {name for name, _ in self._head.headers}
        more = bool(names & {b"content-length", b"transfer-encoding"})
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            self._stir(bound)
            if chunk := message.get("body", b""):
                await self._write(h11.Data(data=chunk))
                self._stir(bound)
            more = message.get("more_body", False)
        await self._write(h11.EndOfMessage())
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _write(self, event: h11.Event) -> None:
        data = self._wire.send(event)
        if data:
            await self._tunnel.write(data)

    async def _tell(self, send: Send, bound: asyncio.Timeout) -> None:
        """Forward the response to its end."""
        while True:
            event = self._wire.next_event()
            if event is h11.NEED_DATA:
                self._wire.receive_data(await self._tunnel.read())
                self._stir(bound)
            elif isinstance(event, h11.Response):
                if event.status_code > _LAST_STATUS:
                    raise h11.RemoteProtocolError(f"its status is {event.status_code}")
                self._begun = True
                await send(
                    {"type": "http.response.start", "status": event.status_code, "headers": _response_headers(event)}
                )
            elif isinstance(event, h11.Data):
                await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
                self._stir(bound)
            elif isinstance(event, h11.EndOfMessage):
                await send({"type": "http.response.body", "body": b""})
                return
            elif isinstance(event, h11.InformationalResponse) and event.status_code == _SWITCHING:
                await self._pass(event, bound)
                return
            elif not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("it closed the connection")

    async def _pass(self, agreed: h11.InformationalResponse, bound: asyncio.Timeout) -> None:
        """The port has switched protocols: copy bytes in both directions until one side closes."""
        raw = self._raw
        if raw is None:
            raise h11.RemoteProtocolError("it switched protocols unasked")
        self._begun = True
        await raw.switch(switching(list(agreed.headers)))
        early, _ = self._wire.trailing_data
        if early:
            await raw.write(early)
        await first_of(
            copied(self._tunnel.read, raw.write, lambda: self._stir(bound)),
            copied(raw.read, self._tunnel.write, lambda: self._stir(bound)),
        )


def _response_headers(answer: h11.Response) -> list[tuple[bytes, bytes]]:
    """A response's headers for the client, without those that our own server sets: it dates and frames the response."""
    dropped = {b"date", *((b"content-length",) if answer.status_code in _BODILESS else ())}
    return [(name, value) for name, value in passed_on(list(answer.headers)) if name not in dropped]
