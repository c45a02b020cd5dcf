"""Numbers in a client's text, of any length and in any script, never cause an error of ours."""

import asyncio
import contextlib
import hashlib
from base64 import b64encode
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request

from sandbox_server.app.bodies import BoundBody
from sandbox_server.boxes.boxes import BoxView
from sandbox_server.errors import BodyTooSlow, MalformedRequest, Unauthorized
from sandbox_server.protocols._numbers import whole
from sandbox_server.protocols.boxes import Seconds
from sandbox_server.protocols.e2b import access, connect, listing, ports

HUGE = "9" * 5000
SPELLED = st.one_of(
    st.integers(-(10**6), 10**20).map(str),
    st.sampled_from([HUGE, "0" * 5000 + "7", "²", "٣", "nan", "inf", "1e3", "+5", "1_0", " 7", ""]),
    st.text(max_size=8),
)


@given(SPELLED, st.integers(1, 10**12))
@example("0" * 5000 + "7", 9)
def test_whole(text: str, most: int) -> None:
    """`int` raises past 4,300 digits, and accepts `1_0` and digits of other scripts."""
    number = whole(text, most)
    assert number is None or (0 <= number <= most and text.strip("0123456789") == "" and text.isascii())
    if text.isascii() and text.isdigit() and len(digits := text.lstrip("0") or "0") < 20:
        assert number == (int(digits) if int(digits) <= most else None)


def signed(ends: str) -> Request:
    digest = hashlib.sha256(f"/f:read:u:token:{ends}".encode("utf-8", "surrogatepass")).digest()
    signature = "v1_" + b64encode(digest).rstrip(b"=").decode()
    query = {"path": "/f", "username": "u", "signature": signature, "signature_expiration": ends}
    return cast(Request, SimpleNamespace(query_params=query))


@given(SPELLED.filter(bool))
@example(HUGE)
def test_a_signatures_end(ends: str) -> None:
    """5,000 digits were a ValueError and so a 500."""
    view = cast(BoxView, SimpleNamespace(box=SimpleNamespace(token="token")))
    try:
        access._signed(signed(ends), view, "read")
    except Unauthorized as refused:
        assert "expired" in refused.detail
    else:
        assert int(ends) > 1_700_000_000


@given(SPELLED)
@example("0" * 5000 + "7")
def test_headers_and_parameters(text: str) -> None:
    """Each of these parsed its text with `int`."""
    for read in (connect.timeout_s, connect.keepalive_s):
        try:
            read({"connect-timeout-ms": text, "keepalive-ping-interval": text})
        except connect.ConnectError as refused:
            assert refused.code is connect.Code.INVALID_ARGUMENT
    with contextlib.suppress(MalformedRequest):
        assert 1 <= listing._limit(text) <= listing._MOST
    listing.filtered([], QueryParams({"limit": text}))
    ports.Names("box.test").read(f"{text}-abc.box.test")
    refusal = ports._refuse(ports.NoAnswer("the port"), cast(Any, {"host": f"{text}-abc.box.test"}))
    assert refusal.body.get("port", 0) in range(1 << 16)


@pytest.mark.parametrize("length", [HUGE, "²", "-1", "1e9", "nan"])
async def test_a_length_of_a_body(length: str) -> None:
    """`isdigit` accepts `²`, `int` does not."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/", "headers": [(b"content-length", length.encode("latin-1", "replace"))]}
    await BoundBody(app, 1000, 60.0, all_bytes=1000, wait_s=1.0)(cast(Any, scope), cast(Any, receive), send)
    assert sent[0]["status"] == (413 if length == HUGE else 200)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300, 0, -1])
def test_seconds_without_an_end(seconds: float) -> None:
    """1e400 in JSON is an infinity."""
    with pytest.raises(ValidationError):
        TypeAdapter(Seconds).validate_python(seconds)


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """The time limit has a bound: a client that sends a byte now and then must not hold its request forever."""

    async def app(scope: object, receive: Any, send: object) -> None:
        for _ in range(3):
            await receive()

    async def receive() -> dict[str, object]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def whole() -> dict[str, object]:
        return {"type": "http.request", "body": b"x", "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/postprocess", "headers": []}
    with pytest.raises(BodyTooSlow):
        await BoundBody(app, 1000, 0.03, all_bytes=1000, wait_s=1.0)(
            cast(Any, scope), cast(Any, receive), cast(Any, None)
        )
    await BoundBody(app, 1000, 0.03, all_bytes=1000, wait_s=1.0)(cast(Any, scope), cast(Any, whole), cast(Any, None))
