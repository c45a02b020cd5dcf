"""Frames of the Connect protocol: any input is parsed or refused, never misread."""

import json
import struct
from itertools import pairwise

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from sandbox_server.protocols.e2b import connect
from sandbox_server.protocols.e2b.connect import Code, ConnectError, Frames, Message


class Sample(Message):
    """A message with fields of all kinds."""

    some_name: str = ""
    size: int = 0
    words: list[str] = Field(default_factory=list)
    envs: dict[str, str] = Field(default_factory=dict)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """`data` in pieces, as from a network."""
    places = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


@given(st.lists(st.tuples(st.sampled_from([0, connect.LAST]), st.binary(max_size=300))), st.lists(st.integers(0)))
def test_round_trip(sent: list[tuple[int, bytes]], at: list[int]) -> None:
    """A frame may be cut anywhere; it is neither lost nor merged with the next."""
    frames = Frames()
    wire = b"".join(connect.frame(content, flags) for flags, content in sent)
    assert [found for piece in cut(wire, at) for found in frames.feed(piece)] == sent
    frames.end()


@given(st.binary(max_size=2000), st.lists(st.integers(0)))
def test_whatever_comes(data: bytes, at: list[int]) -> None:
    """Garbage from a client is the client's error, not ours."""
    frames = Frames(most=1000)
    try:
        for piece in cut(data, at):
            for flags, content in frames.feed(piece):
                assert flags in (0, connect.LAST)
                assert len(content) <= 1000
        frames.end()
    except ConnectError as error:
        assert error.code in (Code.UNIMPLEMENTED, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED)


@given(st.integers(1001, 2**32 - 1))
def test_too_long(size: int) -> None:
    """A frame that announces 4 GB is refused, not waited for."""
    with pytest.raises(ConnectError) as refused:
        list(Frames(most=1000).feed(struct.pack(">BL", 0, size)))
    assert refused.value.code is Code.RESOURCE_EXHAUSTED


@given(st.binary(max_size=300))
def test_any_body(body: bytes) -> None:
    """A body that is not a message is not a 500."""
    try:
        assert isinstance(connect.parse(Sample, body), Sample)
    except ConnectError as error:
        assert error.code is Code.INVALID_ARGUMENT


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.lists(st.text()), st.dictionaries(st.text(), st.text()))
def test_messages(name: str, size: int, words: list[str], envs: dict[str, str]) -> None:
    """Both of protobuf's spellings of a name, 64-bit integers as strings, unknown fields and nulls are accepted."""
    value = {"size": str(size), "words": words, "envs": envs, "later": {"x": 1}}
    for spelled in ("someName", "some_name"):
        read = connect.parse(Sample, json.dumps({**value, spelled: name}).encode())
        assert read == Sample(some_name=name, size=size, words=words, envs=envs)
    assert connect.parse(Sample, b'{"size":null}') == connect.parse(Sample, b"") == Sample()


def test_deep_nesting() -> None:
    """Deep nesting is the client's error: the parser's recursion limit would otherwise look like ours."""
    with pytest.raises(ConnectError):
        connect.parse(Sample, b'{"words":' + b"[" * 100_000 + b"}")


def test_the_end_tells_the_error() -> None:
    """Every stream has a last frame; without it, clients take the stream for cut."""
    ((flags, content),) = Frames().feed(connect.last_frame(ConnectError(Code.NOT_FOUND, "no such thing")))
    assert flags == connect.LAST
    assert json.loads(content) == {"error": {"code": "not_found", "message": "no such thing"}}
    ((flags, content),) = Frames().feed(connect.last_frame())
    assert (flags, content) == (connect.LAST, b"{}")


@pytest.mark.parametrize(("text", "seconds"), [("", None), ("0", None), ("1", 0.001), ("60000", 60.0)])
def test_timeouts(text: str, seconds: float | None) -> None:
    """0 means no time limit."""
    assert connect.timeout_s({"connect-timeout-ms": text}) == seconds


@pytest.mark.parametrize("text", ["-1", "1e3", "abc", "9" * 30, "1.5"])
def test_bad_timeouts(text: str) -> None:
    """A malformed time limit is refused, not ignored."""
    with pytest.raises(ConnectError):
        connect.timeout_s({"connect-timeout-ms": text})


@pytest.mark.parametrize(
    ("header", "user"), [("Basic dXNlcjo=", "user"), ("Basic cm9vdDpwdw==", "root"), ("Bearer x", ""), ("", "")]
)
def test_users(header: str, user: str) -> None:
    """The user is read exactly: otherwise a command would run as somebody else."""
    assert connect.basic_user({"authorization": header}) == user


def test_a_user_that_cannot_be_read() -> None:
    """A malformed header is refused: otherwise the command would run as the default user."""
    with pytest.raises(ConnectError):
        connect.basic_user({"authorization": "Basic !!!"})


def _streamed(*chunks: bytes) -> Request:
    waiting = [*chunks, b""]

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    headers = [(b"content-type", connect.STREAM.encode())]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


async def test_a_stream_ends_with_its_last_frame() -> None:
    """What follows would be taken for input of the process, or an end in the middle of a message for the end of all."""
    one, last = connect.frame(b'{"size": 1}'), connect.frame(b"{}", connect.LAST)
    found = [message.size async for message in connect.read_stream(_streamed(one, last, one), Sample)]
    assert found == [1]
    with pytest.raises(ConnectError, match="within a message"):
        assert [_ async for _ in connect.read_stream(_streamed(one, one[:-1]), Sample)]


@pytest.mark.parametrize(("text", "seconds"), [("", 90.0), ("0", 1.0), ("30", 30.0), ("soon", 90.0)])
def test_keepalives(text: str, seconds: float) -> None:
    """At an interval of 0 the stream would hold nothing but keepalives."""
    assert connect.keepalive_s({"keepalive-ping-interval": text}) == seconds


def test_an_error_without_a_status_of_its_own_is_the_servers() -> None:
    """Clients repeat a 500 and give up at a 400."""
    codes = (Code.INTERNAL, Code.UNKNOWN, Code.NOT_FOUND)
    assert [connect.unary_error(ConnectError(code, "")).status_code for code in codes] == [500, 500, 404]


def test_half_a_surrogate_pair_does_not_spoil_a_message() -> None:
    """protobuf's parsers refuse the whole list of a folder for one file name; a whole pair and a backslash stay."""
    names = {"lone": "a\ud800b", "whole": "\U0001f600", "backslash": "\\ud800"}
    assert json.loads(connect.dumped(names)) == names | {"lone": "a\ufffdb"}
