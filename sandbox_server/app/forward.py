"""Forwards a request for another node's session to that node, whichever server the load balancer chose.

The inner parts name the owner (`OwnedElsewhere`); this middleware forwards the request unchanged. If that node does not
answer, it may be restarting or dead. The inner parts can tell, so they get the request again, until `patience_s` is
over; then they must answer it. A forwarded request is never forwarded again: the answer is 421, and the first server
looks up the owner again. Nothing is sent to an address before the node has proved itself (`node_proof`).

A streaming request (`Trait.streams`: an upload, an output that lasts for hours) is relayed as it arrives
(`app/relay.py`), and only repeated while nothing of its body has been read.

Repeating is safe: a request that is not idempotent by itself carries an idempotency key, the client's or ours.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.app import node_proof
from sandbox_server.app.access import has, send_error
from sandbox_server.app.relay import HOP_HEADER, MISDIRECTED, UNREACHED, Relay, is_misdirected, of_one_hop
from sandbox_server.errors import NodeUnreachable, OwnedElsewhere, StateUnavailable
from sandbox_server.protocols._by_host import RAW, TARGET, passed_on
from sandbox_server.state.nodes import HOP, Hop, Liveness, NodeRecord, Nodes
from sandbox_server.telemetry import FORWARDED, logger

log = logger(__name__)

_KEY = "idempotency-key"
_PAUSE_S = 0.2
_LOOK_EVERY_S = 1.0
"""Interval of checks whether the other node still has a heartbeat."""
_CONNECT_S = 2.0
_CONNECTIONS = 2048
"""Maximum connections to all other nodes; each waits for one answer, like a client's own connection."""


class Forward:
    """Forwards requests to their nodes. `nodes()` returns the registry of nodes, once the server has started."""

    def __init__(self, app: ASGIApp, nodes: Callable[[], Nodes], *, timeout_s: float, patience_s: float) -> None:
        """`timeout_s` bounds another node's answer, `patience_s` the retries while that node does not answer."""
        self._app = app
        self._nodes = nodes
        self._patience_s = patience_s
        # created here because it reads the CA certificates: 50 ms that no session should wait for
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S),
            limits=httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=256, keepalive_expiry=30),
            trust_env=False,  # a proxy for the outside world must not be used between nodes
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            if scope["type"] == "lifespan":
                await self._client.aclose()
            return
        request = _Request(scope, receive, keeps=not has(scope, "streams"))
        headers = Headers(scope=scope)
        if scope["path"] == node_proof.PATH and (nonce := headers.get(node_proof.CHALLENGE)):
            await node_proof.answer(send, self._nodes().proof(nonce))
            return
        said = headers.get(HOP_HEADER)
        # the header must hold the hop secret: else a client could choose the node of its starts
        forwarded = said is not None and self._nodes().is_hop(said)
        HOP.set(Hop.FORWARDED if forwarded else Hop.FREE)  # each request runs in a task with its own context
        try:
            await self._app(scope, request.receive, send)
        except OwnedElsewhere as there:
            if forwarded:
                error = NodeUnreachable(f"the session is on node {there.node} by now; send the request again")
                proof = (HOP_HEADER.encode(), str(said).encode("latin-1"))
                await send_error(scope, send, error, [proof], status=MISDIRECTED)
            else:
                await self._elsewhere(request, send, there.node)

    async def _answered(self, request: "_Request", send: Send, node: str) -> bool:
        """Forward the request once; True if it was answered or the client is gone, False if the node did not answer."""
        if not request.keeps:
            return await self._relayed(request, send, node)
        answer = await self._ask(request, node)
        if answer is None:
            return request.hung_up
        FORWARDED.labels("answered").inc()
        await answer.send(send)
        return True

    async def _relayed(self, request: "_Request", send: Send, node: str) -> bool:
        """As `_answered`, for a streaming request."""
        try:
            record = await self._nodes().get(node)
        except StateUnavailable:
            record = None
        if record is None:
            return False
        relay = Relay(self._client, request.scope, request.receive, send)
        passing = asyncio.create_task(relay.run(record, request.target, request.headers_for(record)))
        leaving = asyncio.create_task(relay.wait_for_hang_up())
        await self._watched(passing, leaving, node)
        if not passing.cancelled():
            passing.result()
        if relay.failed:
            self._nodes().shun(node)
        left = relay.left or not leaving.cancelled()
        if relay.done:
            FORWARDED.labels("answered").inc()
        elif relay.begun:
            log.warning("answer of another node cut off", node=node, path=request.scope["path"], client_left=left)
        elif relay.taken and not left:
            error = NodeUnreachable(f"node {node} broke off in the middle of the request; its outcome is unknown")
            await send_error(request.scope, send, error)
        return relay.begun or relay.taken or left

    async def _watched(self, asking: asyncio.Task[Any], leaving: asyncio.Task[None], node: str) -> None:
        """Wait until an exchange is over, its client has hung up, or its node is dead."""
        try:
            while not (asking.done() or leaving.done()):
                await asyncio.wait({asking, leaving}, timeout=_LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done() and await self._is_gone(node):
                    break  # the node hangs or has lost Redis: its answer would be worthless
        finally:
            for task in (asking, leaving):  # to the other node, a cancelled exchange looks like a client that hung up
                if not task.done():
                    task.cancel()
            await asyncio.gather(asking, leaving, return_exceptions=True)

    async def _elsewhere(self, request: "_Request", send: Send, node: str) -> None:
        """Have the request answered by `node`, or by the current owner if that has changed."""
        ends = asyncio.get_running_loop().time() + self._patience_s
        if request.keeps:
            await request.body()
        while True:
            if await self._answered(request, send, node):
                return
            if asyncio.get_running_loop().time() > ends:
                FORWARDED.labels("given_up").inc()
                HOP.set(Hop.TRIED)
            else:
                await asyncio.sleep(_PAUSE_S)
            try:
                await self._app(request.scope, request.receive_again(), send)
            except OwnedElsewhere as there:
                node = there.node
            else:
                return

    async def _ask(self, request: "_Request", node: str) -> "_Answer | None":
        """The node's answer; None if it did not answer, died or is not the owner, or if our client hung up."""
        asking = asyncio.create_task(self._exchange(request, node))
        await self._watched(asking, asyncio.create_task(request.wait_for_hang_up()), node)
        return None if asking.cancelled() else asking.result()

    async def _is_gone(self, node: str) -> bool:
        try:
            return await self._nodes().liveness(node) is Liveness.DEAD
        except StateUnavailable:
            return False

    async def _exchange(self, request: "_Request", node: str) -> "_Answer | None":
        nodes = self._nodes()
        with suppress(StateUnavailable):
            record = await nodes.get(node)
            if record is None:
                return None
            try:
                async with self._client.stream(
                    request.scope["method"],
                    record.url + request.target,
                    headers=request.headers_for(record),
                    content=await request.body(),
                    extensions=node_proof.to_node(record),
                ) as response:
                    content = b"".join([chunk async for chunk in response.aiter_raw()])
            except UNREACHED as error:
                nodes.shun(node)
                log.warning("node does not answer", node=node, url=record.url, error=str(error) or type(error).__name__)
                return None
            if not is_misdirected(response, request.scope, record.hop_secret):
                return _Answer(response.status_code, response.headers.raw, content)
        return None


class _Request:
    """A request whose body can be read again; a streaming request (not `keeps`) can be read once."""

    def __init__(self, scope: Scope, receive: Receive, *, keeps: bool) -> None:
        self.scope = scope
        self.keeps = keeps
        self._receive = receive
        self._messages: list[Message] = []
        self._whole = False
        self.hung_up = False
        self._key = secrets.token_hex(16)

    async def receive(self) -> Message:
        """The ASGI call; if `keeps`, stores the messages of the body."""
        message = await self._receive()
        if not self.keeps:
            return message
        if message["type"] == "http.disconnect":
            self.hung_up = True
        elif not self._whole:
            self._messages.append(message)
            self._whole = not message.get("more_body", False)
        return message

    def receive_again(self) -> Receive:
        """A `receive` that repeats the stored messages, then continues."""
        messages = iter(list(self._messages))

        async def receive() -> Message:
            for message in messages:
                return message
            return await self.receive()

        return receive

    async def body(self) -> bytes:
        """The whole body; reads what has not been read yet. Raises RequestTooLarge."""
        while not self._whole and not self.hung_up:
            await self.receive()
        return b"".join(message.get("body", b"") for message in self._messages)

    async def wait_for_hang_up(self) -> None:
        """Return once the client has hung up."""
        await self.body()
        while not self.hung_up:
            await self.receive()

    @property
    def target(self) -> str:
        """Path and query as received."""
        query: bytes = self.scope["query_string"]
        path: bytes = self.scope.get("raw_path") or self.scope["path"].encode()
        return (path + (b"?" + query if query else b"")).decode("latin-1")

    def headers_for(self, node: NodeRecord) -> list[tuple[bytes, bytes]]:
        """The client's headers and the hop secret; a POST without an idempotency key gets ours."""
        hop, said = (HOP_HEADER.encode(), node.hop_secret.encode()), HOP_HEADER.encode()
        if TARGET in self.scope:  # the other node also routes by the host name, and the headers are for the box
            asked = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade")] if RAW in self.scope else []
            return [*(pair for pair in passed_on(self.scope["headers"]) if pair[0] != said), *asked, hop]
        headers: list[tuple[bytes, bytes]] = [
            (name, value)
            for name, value in self.scope["headers"]
            if not of_one_hop(name) and name != said and (name != b"content-length" or not self.keeps)
        ]
        headers.append(hop)
        if self.scope["method"] == "POST" and all(name != _KEY.encode() for name, _ in headers):
            headers.append((_KEY.encode(), self._key.encode()))
        return headers


class _Answer:
    """Another node's answer."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], content: bytes) -> None:
        self._status = status
        own = [(name.lower(), value) for name, value in headers]
        self._headers = [(name, value) for name, value in own if not of_one_hop(name) and name != b"content-length"]
        self._headers.append((b"content-length", str(len(content)).encode()))
        self._content = content

    async def send(self, send: Send) -> None:
        """Send the answer to our client."""
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._content})
