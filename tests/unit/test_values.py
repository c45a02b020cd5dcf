"""JSON bodies with so many values that decoding would block the event loop are detected before decoding."""

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from sandbox_server.errors import MalformedRequest, RequestTooLarge
from sandbox_server.protocols import _values, _wire
from sandbox_server.protocols._values import MOST, holds_too_many, may_hold_too_many
from sandbox_server.protocols._wire import modelled
from sandbox_server.protocols.e2b.connect import Code, ConnectError, Message, parse


class Words(Message):
    """A message with many values."""

    words: list[str] = Field(default_factory=list)


JSON = st.recursive(
    st.one_of(st.integers(), st.text(alphabet='a,"\\\n{[', max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(alphabet='",\\', max_size=3), inner)),
    max_leaves=20,
)


def commas(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(0, len(inner) - 1) + sum(map(commas, inner))


@given(JSON, st.integers(0, 8))
def test_commas_outside_of_texts(value: object, most: int) -> None:
    """One in a text would count, and a long file be refused; or a quote in a text would hide what follows."""
    had, _values.MOST = _values.MOST, most
    try:
        assert holds_too_many(json.dumps(value).encode(), most_texts=10_000) == (commas(value) > most)
    finally:
        _values.MOST = had


@given(st.binary(max_size=300).map(lambda data: data.replace(b"a", b'"').replace(b"b", b"\\")))
def test_whatever_it_is(data: bytes) -> None:
    """Parsing a body that ends within a string takes forever."""
    holds_too_many(data, most_texts=50)


@pytest.mark.parametrize("piece", [b"1,", b"{},", b'"",', b'{"a":1},', b'"\\"",'])
def test_many_values(piece: bytes) -> None:
    """Four megabytes of them held the loop for 0.7 s, a whole body for 5 s."""
    body = b'{"a":[' + piece * ((4 << 20) // len(piece)) + b"0]}"
    assert may_hold_too_many(body)
    began = time.process_time()
    assert holds_too_many(body, most_texts=4_000_000)
    with pytest.raises(ConnectError) as refused:
        parse(Message, body)
    assert refused.value.code is Code.RESOURCE_EXHAUSTED
    assert time.process_time() - began < 2


def test_backslashes_take_no_time() -> None:
    """Twenty megabytes of them held the loop for 0.9 s."""
    body = b'{"a": "' + b"\\" * (20 << 20) + b'", "b": [' + b"1," * (MOST + 1) + b"1]}"
    began = time.process_time()
    assert holds_too_many(body, most_texts=MOST)
    assert time.process_time() - began < 0.3


def test_many_faults_take_no_time() -> None:
    """A list of 200,000 wrong values held the loop for 0.5 s, and was answered by ten megabytes."""
    with pytest.raises(ConnectError, match=r"199000 .*values") as refused:
        parse(Words, b'{"words":[' + b"1," * 198_999 + b"1]}")
    assert refused.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(MalformedRequest, match=r"199000 .*values"):
        modelled({"words": [1] * 199_000}, Words)
    with pytest.raises(MalformedRequest, match=r"words: Input should be a valid string"):
        modelled({"words": [1]}, Words)


async def test_one_body_is_looked_at_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 large bodies held up the loop for up to a second: each thread that computes takes 5 ms at its turns."""
    looking, most = 0, 0

    def look(body: bytes, *, most_texts: int) -> bool:
        nonlocal looking, most
        looking += 1
        most = max(most, looking)
        time.sleep(0.01)
        looking -= 1
        return True

    monkeypatch.setattr(_wire, "holds_too_many", look)
    body = b"[" + b"1," * (MOST + 1) + b"1]"
    refused = await asyncio.gather(*(_wire.json_in(body) for _ in range(8)), return_exceptions=True)
    assert [type(error) for error in refused] == [RequestTooLarge] * 8
    assert most == 1


async def test_large_bodies_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several that were complete at the same time held the loop for up to 1.2 s, one after another."""
    rounds, decoded = 0, list[int]()

    def decode(body: bytes) -> object:
        decoded.append(rounds)
        return None

    monkeypatch.setattr(_wire, "_decoded", decode)
    reading = asyncio.gather(*(_wire.json_in(b'"' + bytes(_wire._LARGE) + b'"') for _ in range(8)))
    while not reading.done():
        await asyncio.sleep(0)
        rounds += 1
    assert len(set(decoded)) == 8, f"several in one round: {decoded}"


def test_a_long_text_is_none_of_them() -> None:
    """A file of figures that an action writes would be refused."""
    body = json.dumps({"sid": 1, "content": '1,"2"\\\n' * 200_000}).encode()
    assert may_hold_too_many(body)
    assert body.count(b",") > MOST - 1
    assert not holds_too_many(body, most_texts=4_000_000)
