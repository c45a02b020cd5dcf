"""Before any route: the API key and the bound on the body. Plain ASGI, for they see every request."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.errors import BodyTooSlow, RequestTooLarge, ServiceError, Unauthorized
from sandbox_server.protocols._numbers import is_whole, whole
from sandbox_server.protocols._traits import TRAIT, Trait
from sandbox_server.protocols._wire import KEY_NAME, KEY_OWNER, KEY_VIEWS
from sandbox_server.ui.login import Role

OPEN_PATHS = frozenset({"/healthz"})
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9._:/@+-]{1,100})=(?P<key>.{8,})")
"""The padding of base64 at a key's end is no key."""
_DRAINED = 4
"""Times the bound that is read and thrown away, so that a client still sending gets to read the 413."""


class RequireKey:
    """401 without one of the keys: Bearer, X-API-Key, or the password of HTTP Basic. `app.rights` says what it may.

    An entry `name=key` gives the key a name, which the request's scope then holds. What opened before names were
    there still does: the whole entry is a key too, without a name. So a key that itself holds `=` is best given a
    name, or the text behind its first `=` opens as well, where that is long enough to be a key.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], view_keys: Sequence[str] = ()) -> None:
        """`view_keys`: of those who only look. Raises ValueError: one opens as another key too."""
        self._app = app
        named = [match for key in keys if (match := _NAMED.fullmatch(key))]
        # the whole entry names no run, but whoever knows it holds the entry's key: it owns no more than that does
        owners = {match.string: match["name"] for match in named}
        entries = [(key, _Key("", owners.get(key, ""))) for key in keys]
        entries += [(match["key"], _Key(match["name"], match["name"])) for match in named]
        if set(view_keys) & {key for key, _ in entries}:
            raise ValueError("a key of SANDBOX_VIEW_KEYS is one of SANDBOX_API_KEYS too: whoever has it could do all")
        entries += [(key, _Key("", "", views=True)) for key in view_keys]
        self._keys = [(_digest(key.encode()), known) for key, known in entries]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI."""
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS or has(scope, "opens"):
            await self._app(scope, receive, send)
        elif (key := self._key(Headers(scope=scope))) is not None:
            await self._app({**scope, **key.scope}, receive, send)
        elif scope["type"] == "http":
            error = Unauthorized("Send an API key: Authorization: Bearer, X-API-Key, or https://user:KEY@host.")
            headers = [(b"www-authenticate", b'Basic realm="sandbox-server", Bearer')]
            await send_error(scope, send, error, headers)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _key(self, headers: Headers) -> "_Key | None":
        """The one that the request brings; None: it brings none of ours."""
        offered = [headers.get("x-api-key", "").encode("latin-1")]
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        credentials = rest.strip().encode("latin-1")
        if scheme.lower() == "bearer":
            offered.append(credentials)
        elif scheme.lower() == "basic":
            try:
                offered.append(base64.b64decode(credentials, validate=True).partition(b":")[2])
            except binascii.Error:
                return None
        return self.knows(offered)

    def knows(self, offered: Sequence[bytes]) -> "_Key | None":
        """The first of them that is a key of ours."""
        # every comparison is made, each in constant time: how long it takes tells nothing of a key
        matches = [
            (key, hmac.compare_digest(_digest(text), digest)) for text in offered if text for digest, key in self._keys
        ]
        return next((key for key, matched in matches if matched), None)


@dataclass(frozen=True, slots=True)
class _Key:
    name: str
    owner: str
    """Whose sessions and runs are its own; "": an operator's, all are."""
    views: bool = False

    @property
    def scope(self) -> dict[str, object]:
        """What the request's scope holds of it."""
        return {KEY_NAME: self.name, KEY_OWNER: self.owner, KEY_VIEWS: self.views}


def operator_key(entries: Sequence[str]) -> str:
    """Of SANDBOX_API_KEYS one that may do all, else the first; "": there are none."""
    return next((key for key in entries if _NAMED.fullmatch(key) is None), entries[0] if entries else "")


class BoundBody:
    """413 past `max_bytes`: by Content-Length at once, else when that much has come. 408: not there in time."""

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._timeout_s = timeout_s
        self._max = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI."""
        if scope["type"] != "http" or has(scope, "streams"):
            await self._app(scope, receive, send)
            return
        error = RequestTooLarge(f"The body is larger than {self._max / 2**20:g} MB (SANDBOX_MAX_BODY_MB).")
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if is_whole(length) and whole(length, self._max) is None:
            if "expect" not in headers:  # with it the client waits for our word before it sends anything
                await self._drain(receive)
            await send_error(scope, send, error)
            return
        came, whole_body = 0, False
        until = asyncio.get_running_loop().time() + self._timeout_s

        async def bounded() -> Message:
            nonlocal came, whole_body
            if whole_body:  # what comes now is the client's leaving, whenever that is
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise BodyTooSlow(f"The body did not come within {self._timeout_s:g} s.") from None
            whole_body = not message.get("more_body", False)
            came += len(message.get("body", b""))
            if came > self._max:
                await self._drain(receive)
                raise error
            return message

        await self._app(scope, bounded, send)

    async def _drain(self, receive: Receive) -> None:
        came = 0
        while came < _DRAINED * self._max:
            message = await receive()
            came += len(message.get("body", b""))
            if not message.get("more_body", False):
                return


async def send_error(
    scope: Scope,
    send: Send,
    error: ServiceError,
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    status: int | None = None,
) -> None:
    """The error as a whole JSON answer, as the path's protocol spells it; `status` in place of its own."""
    trait: Trait | None = scope.get(TRAIT)
    if trait is not None and trait.refuse is not None:
        refusal = trait.refuse(error, Headers(scope=scope))
        named = [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
        own, content, headers = refusal.status, refusal.body, [*headers, *named]
    else:
        own = error.http_status
        content = {"code": error.code, "detail": error.detail, "retryable": error.retryable}
    body = json.dumps(content).encode()
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status or own, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})


def role_of(keys: Sequence[str], view_keys: Sequence[str]) -> Callable[[str], Role | None]:
    """What the pages may be used for with a key; None: for nothing, as with a tenant's, for they show all runs."""
    guard = RequireKey(_nowhere, keys, view_keys)

    def role(text: str) -> Role | None:
        key = guard.knows([text.encode("utf-8", "replace")]) if text else None
        if key is None or key.owner:
            return None
        return "viewer" if key.views else "operator"

    return role


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """No application."""


def has(scope: Scope, trait: str) -> bool:
    """Whether the protocol says this of the path: `opens`, `streams`."""
    return bool(getattr(scope.get(TRAIT), trait, False))


def is_loopback(host: str) -> bool:
    """Whether listening on `host` reaches this machine alone; a name that cannot be resolved does not."""
    try:
        found = socket.getaddrinfo(host, None) if host else []
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(entry[4][0]).split("%")[0]).is_loopback for entry in found)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
