"""Streamed answers: chunks are sent as they come, the end with the last one, and a disconnect stops the stream."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from sandbox_server.protocols._streamed import Last, Streamed


class Client:
    """What an HTTP server is for an application."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.gone = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.said.append(message)

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def take(self, answer: Streamed) -> list[tuple[bytes, bool]]:
        """Body and whether there is more, of each message past the start."""
        await answer({"type": "http"}, self.receive, self.send)
        assert self.said[0] == {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"x/y")]}
        return [(message["body"], message["more_body"]) for message in self.said[1:]]


async def pieces(*given: bytes) -> AsyncGenerator[bytes, None]:
    for piece in given:
        yield piece


async def test_the_end_goes_with_the_last_piece() -> None:
    """Each message more wakes the client once more."""
    assert await Client().take(Streamed(pieces(b"1", Last(b"2")), "x/y")) == [(b"1", True), (b"2", False)]
    assert await Client().take(Streamed(pieces(b"1"), "x/y")) == [(b"1", True), (b"", False)]


@pytest.mark.parametrize("after_s", [0.0, 0.4])
async def test_a_client_that_leaves(after_s: float) -> None:
    """Followers of long commands are kept and fed although their clients have disconnected."""
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            yield b"1"
            await asyncio.sleep(60)
        finally:
            closed.set()

    client = Client()
    asyncio.get_running_loop().call_later(after_s, client.gone.set)
    async with asyncio.timeout(5):
        assert await client.take(Streamed(endless(), "x/y")) == [(b"1", True)]
    assert closed.is_set()
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()


async def test_a_server_that_stops() -> None:
    """Its own cancellation is not taken for the client's leaving."""

    async def endless() -> AsyncGenerator[bytes, None]:
        yield b"1"
        await asyncio.sleep(60)

    answering = asyncio.create_task(Client().take(Streamed(endless(), "x/y")))
    await asyncio.sleep(0.3)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


async def test_a_fault_is_told_to_the_server() -> None:
    async def broken() -> AsyncGenerator[bytes, None]:
        yield b"1"
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await Client().take(Streamed(broken(), "x/y"))


async def test_a_source_is_closed_whatever_ends_the_stream() -> None:
    """A follower of a long command would be fed until the collector finds it."""
    closed = asyncio.Event()

    async def source() -> AsyncGenerator[bytes, None]:
        try:
            yield b"1"
            yield b"2"
        finally:
            closed.set()

    class Broken(Client):
        async def send(self, message: Message) -> None:
            await super().send(message)
            if message.get("body") == b"1":
                raise OSError("the connection is reset")

    pieces = source()  # kept, so that no collector closes it
    with pytest.raises(OSError, match="reset"):
        await Broken().take(Streamed(pieces, "x/y"))
    assert closed.is_set()
