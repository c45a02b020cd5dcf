"""Streams through a node that does not have the box: uploads and outputs of any length, over real HTTP."""

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.app.failures import UnhandledErrors
from sandbox_server.app.forward import Forward
from sandbox_server.app.paths import Paths
from sandbox_server.errors import NodeUnreachable, OwnedElsewhere
from sandbox_server.protocols._traits import Trait
from sandbox_server.state.connection import Connection
from sandbox_server.state.keys import Keys
from sandbox_server.state.nodes import HOP, Hop, NodeRecord, Nodes
from tests.conformance.state_backends import embedded

MIB = 1 << 20


@dataclass
class Far:
    """The other node: takes uploads, returns outputs, and records what it got."""

    seen: list[tuple[str, float]] = field(default_factory=list)
    taken: int = 0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        self.seen.append((scope["path"], time.monotonic()))
        match scope["path"]:
            case "/flow/up":
                await self._up(receive, send)
            case "/flow/down":
                await self._down(receive, send)
            case "/flow/broken":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async def _up(self, receive: Receive, send: Send) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            self.taken += len(message.get("body", b""))
            self.began.set()
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 201, "headers": [(b"x-taken", str(self.taken).encode())]})
        await send({"type": "http.response.body", "body": b"done"})

    async def _down(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        leaving = asyncio.create_task(self._gone(receive))
        for number in range(10_000):
            await send({"type": "http.response.body", "body": b"%d\n" % number, "more_body": True})
            if (await asyncio.wait({leaving}, timeout=0.02))[0]:
                self.left.set()
                return

    async def _gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


@contextlib.asynccontextmanager
async def served(app: ASGIApp, lifespan: Literal["on", "off"] = "off") -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            app, http="httptools", log_config=None, ws="none", lifespan=lifespan, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 -- uvicorn has no event for it
            await asyncio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


@dataclass
class Near:
    """A node without boxes."""

    url: str
    far: Far
    tried: list[str]
    theirs: Nodes
    """The other node's view."""


def _node(app: ASGIApp, nodes: Nodes) -> ASGIApp:
    """`app` as one node of several."""
    forward = Forward(app, lambda: nodes, timeout_s=20, patience_s=3)
    return Paths(UnhandledErrors(forward), "", [Trait(re.compile("/flow/"), streams=True)])


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded(Path(tmp_path_factory.mktemp("relay"))) as url:
        yield url


@pytest.fixture
async def near(redis_url: str) -> AsyncIterator[Near]:
    far, tried = Far(), []
    connection = Connection(redis_url, timeout_s=5)
    nodes = Nodes(connection, Keys(), node="near", boot="near/1", ttl_s=2)

    async def nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for state in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{state}.complete"})
            return
        tried.append(scope["path"])
        if HOP.get() is Hop.TRIED:
            raise NodeUnreachable("far does not answer")
        raise OwnedElsewhere("far")

    theirs = Nodes(connection, Keys(), node="far", boot="far/1", ttl_s=60)
    async with served(_node(nothing_here, nodes), "on") as url, served(_node(far, theirs)) as far_url:
        await theirs.beat(NodeRecord("far", far_url, "far/1"))

        yield Near(url, far, tried, theirs)
    await connection.close()


async def test_an_upload_flows(near: Near) -> None:
    """An upload is streamed, not held in the memory of each node that forwards it."""
    first = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * MIB
        await near.far.began.wait()  # it arrives before the rest was sent
        first.set()
        for _ in range(40):
            yield b"x" * MIB

    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"{near.url}/flow/up?path=/x", content=body(), timeout=20)
        assert (answer.status_code, answer.text, answer.headers["x-taken"]) == (201, "done", str(41 * MIB))
        assert first.is_set()
        sized = await client.post(f"{near.url}/flow/up", content=b"y" * 1000, timeout=20)
        assert sized.headers["x-taken"] == str(41 * MIB + 1000)
        empty = await client.post(f"{near.url}/flow/up", timeout=20)
        assert empty.status_code == 201


async def test_an_output_flows_and_ends_with_its_client(near: Near) -> None:
    """A command's output is forwarded as it comes, and ends if the client disconnects."""
    async with httpx.AsyncClient(trust_env=False) as client:
        began = time.monotonic()
        async with client.stream("POST", f"{near.url}/flow/down", content=b"{}", timeout=20) as answer:
            lines = answer.aiter_lines()
            assert [await anext(lines) for _ in range(3)] == ["0", "1", "2"]
        assert time.monotonic() - began < 15
    await asyncio.wait_for(near.far.left.wait(), 60)


async def test_a_client_that_leaves_in_the_middle_of_an_upload(near: Near) -> None:
    """If the client disconnects, the other node does not wait for the rest for ever."""

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * MIB
        await near.far.began.wait()
        raise RuntimeError("gone")

    async with httpx.AsyncClient(trust_env=False) as client:
        with contextlib.suppress(RuntimeError):
            await client.post(f"{near.url}/flow/up", content=body(), timeout=20)
    await asyncio.wait_for(near.far.left.wait(), 60)
    assert len(near.far.seen) == 1, "it was sent again"


async def test_an_answer_that_breaks_off_is_seen_to(near: Near) -> None:
    """A truncated output is not reported as complete."""
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(f"{near.url}/flow/broken", timeout=20)


async def test_only_what_was_not_taken_is_sent_again(near: Near) -> None:
    """A request is sent again only if the node did not receive it: nothing runs twice, and a restart is no failure."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    await near.theirs.beat(NodeRecord("far", f"http://127.0.0.1:{port}", "far/1"))
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"{near.url}/flow/up", content=b"x" * 1000, timeout=30)
    # the node did not answer: the request was retried until the time limit, then our own parts answer
    assert answer.status_code in (500, 503) and len(near.tried) > 2


@pytest.mark.parametrize("path", ["/flow/up", "/v1/x"])
async def test_an_address_that_cannot_be_one(near: Near, path: str) -> None:
    """The heartbeat of a node with a broken SANDBOX_NODE_URL was a 500 of all others."""
    await near.theirs.beat(NodeRecord("far", "http://[::1", "far/1"))
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.post(f"{near.url}{path}", content=b"{}", timeout=20)
    assert len(near.tried) > 2, "it is a node that does not answer: tried again, then told by our own parts"


SECRET = {"Authorization": "Bearer key-of-a-client"}


@pytest.mark.parametrize("path", ["/flow/up", "/v1/x"])
@pytest.mark.parametrize("stranger", ["another program", "another node", "silent"])
async def test_an_address_that_somebody_else_answers(near: Near, path: str, stranger: str) -> None:
    """It got the client's API key, and its answer was taken for that of the session's node."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(MIB):
            heard.append(piece)
            if stranger == "another program":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong")
        writer.close()

    wrong = Far()
    theirs = Nodes(near.theirs._connection, Keys(), node="third", boot="third/1", ttl_s=60)
    async with served(_node(wrong, theirs)) as third_url, await asyncio.start_server(listen, "127.0.0.1", 0) as other:
        url = third_url if stranger == "another node" else f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        await near.theirs.beat(NodeRecord("far", url, "far/1"))
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(f"{near.url}{path}", content=b"{}", headers=SECRET, timeout=30)
    assert not answer.is_success and "wrong" not in answer.text, answer.text
    assert len(near.tried) > 1, "it is a node that does not answer"
    assert not wrong.seen and b"key-of-a-client" not in b"".join(heard)
    assert (b"sandbox-challenge" in b"".join(heard)) == (stranger != "another node")


async def test_a_node_of_an_older_release_is_not_challenged(near: Near) -> None:
    """A fleet is upgraded one node after the other."""
    async with served(near.far) as url:
        await near.theirs.beat(NodeRecord("far", url, "far/1"))
        connection, key = near.theirs._connection, Keys().node("far")
        record = json.loads(await connection.send("GET", key))
        assert record.pop("proves") is True
        await connection.send("SET", key, json.dumps(record))
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(f"{near.url}/flow/up", content=b"x", timeout=20)
    assert answer.headers["x-taken"] == "1"
