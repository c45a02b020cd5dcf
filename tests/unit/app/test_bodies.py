"""The bounds on request bodies: on each, and on all that are held at a time."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from sandbox_server.app.bodies import BoundBody, ByteBudget
from sandbox_server.errors import BodyTooSlow, CapacityError, RequestTooLarge

MB = 1 << 20


async def _read(
    pieces: Sequence[bytes],
    *,
    length: int | None = None,
    ends: bool = True,
    timeout_s: float = 30.0,
    expects: bool = False,
) -> bytes | int:
    """The body as a route reads it, with a bound of 10 bytes; or the status that was sent in place of the route's.

    `ends`: the last piece is the end of the body; otherwise the client hangs after it.
    """
    waiting = list(pieces)
    read = bytearray()
    sent: list[Message] = []

    async def receive() -> Message:
        if not waiting:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting) or not ends}

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        more = True
        while more:
            message = await receive()
            read.extend(message["body"])
            more = message["more_body"]

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    headers += [(b"expect", b"100-continue")] if expects else []
    scope = {"type": "http", "path": "/", "headers": headers}
    await BoundBody(route, 10, timeout_s, all_bytes=100, wait_s=30.0)(scope, receive, send)
    return int(sent[0]["status"]) if sent else bytes(read)


async def test_a_body_has_a_bound() -> None:
    """One request would fill the server's memory, whether or not it says beforehand how much it sends."""
    assert await _read([b"12345", b"67890"]) == b"1234567890"
    assert await _read([b"12345", b"67890"], length=10) == b"1234567890"
    assert await _read([b"12345", b"678901"], length=11) == 413
    assert await _read([b"1"], length=10**30) == 413
    with pytest.raises(RequestTooLarge):
        await _read([b"12345", b"678901", b"23"])


async def test_a_body_that_is_too_large_in_its_last_piece_is_answered() -> None:
    """The server waited for more of a body that had ended, and the client for an answer."""
    with pytest.raises(RequestTooLarge):
        async with asyncio.timeout(60):
            await _read([b"12345", b"678901"])


async def test_a_body_that_does_not_end_has_a_bound() -> None:
    """Clients that hang would hold the server's connections for good."""
    with pytest.raises(BodyTooSlow):
        await _read([b"123"], ends=False, timeout_s=0.05)
    async with asyncio.timeout(60):
        assert await _read([b"123"], length=11, ends=False, timeout_s=0.05) == 413, (
            "announced as too large, and never sent"
        )


async def test_a_client_that_waits_for_leave_is_refused_at_once() -> None:
    """With Expect: 100-continue no body comes before our answer: both would wait until the body's time is over."""
    async with asyncio.timeout(60):
        assert await _read([], length=11, ends=False, timeout_s=3600, expects=True) == 413


class Held:
    """Requests to a server that holds 5 MB of bodies, a quarter for small ones; the test says when each is done."""

    def __init__(self, wait_s: float = 30.0) -> None:
        self.read: list[str] = []
        self.answers: dict[str, tuple[int, bytes, dict[bytes, bytes]]] = {}
        self.done: dict[str, asyncio.Event] = {}
        self._bound = BoundBody(self._route, 2 * MB, 30.0, all_bytes=5 * MB, wait_s=wait_s)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        more = True
        while more:
            more = (await receive())["more_body"]
        self.read.append(scope["path"])
        await self.done[scope["path"]].wait()

    async def _send(self, name: str, size: int, *, told: bool) -> None:
        left = size
        began: Message = {}

        async def receive() -> Message:
            nonlocal left
            piece = min(left, MB // 8)
            left -= piece
            return {"type": "http.request", "body": bytes(piece), "more_body": left > 0}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                began.update(message)
            else:
                self.answers[name] = (began["status"], message["body"], dict(began["headers"]))

        headers = [(b"content-length", str(size).encode())] if told else []
        await self._bound({"type": "http", "path": name, "headers": headers}, receive, send)

    async def begin(self, name: str, size: int, *, told: bool = True) -> "asyncio.Task[None]":
        """Send a request, and go on once it waits or has been read."""
        self.done[name] = asyncio.Event()
        task = asyncio.create_task(self._send(name, size, told=told))
        for _ in range(100):
            await asyncio.sleep(0)
        return task

    async def end(self, name: str, task: "asyncio.Task[None]") -> None:
        self.done[name].set()
        await task
        for _ in range(100):
            await asyncio.sleep(0)


async def test_all_bodies_together_have_a_bound() -> None:
    """64 bodies of 31 MB at once took 2.1 GB. One counts until its request is over: so long its bytes are kept."""
    held = Held()
    first = await held.begin("first", 2 * MB)
    waiting = await held.begin("second", 2 * MB)
    behind = await held.begin("third", MB + 1)
    assert held.read == ["first"], "the third would find room, but it came later"
    await held.end("first", first)
    assert held.read == ["first", "second", "third"]
    await held.end("second", waiting)
    await held.end("third", behind)
    assert not held.answers


async def test_small_bodies_do_not_wait_behind_large_ones() -> None:
    """An action would wait until those who send 31 MB each are done."""
    held = Held()
    large = [await held.begin(name, 2 * MB) for name in ("first", "second")]
    small = await held.begin("small", MB)
    tiny = [await held.begin(f"tiny-{number}", MB // 16) for number in range(20)]
    assert held.read == ["first", "small", *(f"tiny-{number}" for number in range(20))]
    for name, task in zip(held.done, [*large, small, *tiny], strict=True):
        await held.end(name, task)


async def test_a_wait_for_room_has_a_bound() -> None:
    """Requests hang behind bodies that never end, or a client that is still sending does not see the answer."""
    held = Held(wait_s=0.02)
    first = await held.begin("first", 2 * MB)
    await (await held.begin("second", 2 * MB))
    status, body, headers = held.answers["second"]
    assert (status, headers[b"retry-after"]) == (503, b"10") and b'"reason": "bodies"' in body, body
    with pytest.raises(CapacityError, match="SANDBOX_BODIES_MB"):
        await (await held.begin("third", 2 * MB, told=False))
    await held.end("first", first)
    again = await held.begin("again", 2 * MB)
    assert held.read == ["first", "again"], "what the refused ones took was not given back"
    await held.end("again", again)


async def test_a_body_of_unknown_length_counts_as_the_largest_until_its_end() -> None:
    """A client that tells no length would not be bounded, or several such would wait for each other's rest."""
    held = Held()
    first = await held.begin("first", MB, told=False)
    second = await held.begin("second", 2 * MB, told=False)
    assert held.read == ["first", "second"], "the first is known to be 1 MB by now"
    third = await held.begin("third", 2 * MB, told=False)
    assert held.read == ["first", "second"]
    for name, task in (("first", first), ("second", second), ("third", third)):
        await held.end(name, task)
    assert held.read == ["first", "second", "third"]


async def test_who_leaves_gives_its_place_back() -> None:
    """A client that hangs up while it waits, or just as its turn comes, would take its bytes with it."""
    room = ByteBudget(3, wait_s=30.0)
    assert await room.take(2)
    leaving, behind = asyncio.create_task(room.take(3)), asyncio.create_task(room.take(1))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await behind, "it waits behind nobody any more"
    just = asyncio.create_task(room.take(3))
    await asyncio.sleep(0)
    room.give(1)
    room.give(2)
    just.cancel()
    with pytest.raises(asyncio.CancelledError):
        await just
    assert await room.take(3)
