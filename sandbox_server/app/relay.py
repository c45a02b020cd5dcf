"""Streams one exchange with another node in both directions, without buffering it."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import suppress

import httpcore
import httpx
from starlette.types import Receive, Scope, Send

from sandbox_server.app import node_proof
from sandbox_server.protocols._by_host import RAW, TARGET, RawConnection, switching
from sandbox_server.protocols._copying import copied, first_of
from sandbox_server.state.nodes import NodeRecord
from sandbox_server.telemetry import logger

log = logger(__name__)

MISDIRECTED = 421
"""A node's status for a forwarded request whose session is not its own."""
HOP_HEADER = "sandbox-forwarded"
"""Header with the node's hop secret, in a forwarded request and in the answer that says it is misdirected."""
UNREACHED = (httpx.TransportError, httpx.InvalidURL)
"""Errors if the node did not answer, or if the address in its heartbeat is invalid."""
_SWITCHING = 101
_PIECE = 1 << 15
_OF_ONE_HOP = frozenset(
    (b"host", b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect")
)


def of_one_hop(name: bytes) -> bool:
    """Whether a header (in lower case) is for one hop only."""
    return name in _OF_ONE_HOP


def is_misdirected(response: httpx.Response, scope: Scope, secret: str) -> bool:
    """Whether the node itself answered that the session is not its own.

    A program in a box may answer with the same status, and its request must not be sent again. But it does not know the
    secret. Nodes of older releases send no secret: their answer counts on paths where no program in a box can answer.
    """
    if response.status_code != MISDIRECTED:
        return False
    return TARGET not in scope or hmac.compare_digest(response.headers.get(HOP_HEADER, "").encode(), secret.encode())


class Relay:
    """Relays a request to a node and its answer to the client; call `run` once."""

    def __init__(self, client: httpx.AsyncClient, scope: Scope, receive: Receive, send: Send) -> None:
        self._client = client
        self._scope = scope
        self._receive = receive
        self._send = send
        self._sent = asyncio.Event()
        self.taken = False
        """Whether the request cannot be sent again, usually because part of its body was read."""
        self.begun = False
        """Whether the answer's head was sent to the client."""
        self.done = False
        """Whether the whole answer was sent."""
        self.left = False
        """Whether the client hung up during its request."""
        self.failed = False
        """Whether the node did not answer, or broke off."""

    async def run(self, node: NodeRecord, target: str, headers: list[tuple[bytes, bytes]]) -> None:
        """Relay the request to this path and query of the node; sets the attributes to the outcome."""
        names = {name for name, _ in self._scope["headers"]}
        has_body = bool(names & {b"content-length", b"transfer-encoding"})
        if not has_body:
            self._sent.set()
        try:
            async with self._client.stream(
                self._scope["method"],
                node.url + target,
                headers=headers,
                content=self._body() if has_body else None,
                extensions=node_proof.to_node(node),
            ) as response:
                if response.status_code == _SWITCHING and RAW in self._scope:
                    await self._pass(response, self._scope[RAW])
                elif not is_misdirected(response, self._scope, node.hop_secret):
                    await self._answer(response)
        except UNREACHED as error:
            if TARGET in self._scope and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                self.taken = True  # a request to a box's port has no idempotency key, so it is not repeatable
            if self.left:
                return
            self.failed = True
            log.warning("node does not answer", node=node.node, url=node.url, error=str(error) or type(error).__name__)

    async def wait_for_hang_up(self) -> None:
        """Return once the client has hung up; checks this only after the whole request was read."""
        await self._sent.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _body(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.left = True
                raise httpx.WriteError("the client hung up")  # the other node sees the broken request
            self.taken = True
            if chunk := message.get("body", b""):
                yield chunk
            more = message.get("more_body", False)
        self._sent.set()

    async def _pass(self, response: httpx.Response, raw: RawConnection) -> None:
        """Copy the bytes of a websocket until one side closes; the box's own node bounds its idleness."""
        self.begun = True
        node = response.extensions["network_stream"]
        await raw.switch(switching(response.headers.raw))
        with suppress(httpcore.NetworkError):
            await first_of(
                copied(lambda: node.read(_PIECE), raw.write, lambda: None), copied(raw.read, node.write, lambda: None)
            )
        self.done = True

    async def _answer(self, response: httpx.Response) -> None:
        own = [(name.lower(), value) for name, value in response.headers.raw]
        # our own server adds the date
        headers = [(name, value) for name, value in own if not of_one_hop(name) and name != b"date"]
        self.begun = True
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        async for chunk in response.aiter_raw():
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        await self._send({"type": "http.response.body", "body": b""})
        self.done = True
