"""Middleware before any route: API keys. Plain ASGI, because it sees every request."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_server.errors import ServiceError, Unauthorized
from sandbox_server.protocols._sockets import refusing
from sandbox_server.protocols._traits import TRAIT, Trait
from sandbox_server.protocols._wire import KEY_NAME, KEY_OWNER, KEY_VIEWS, refusal, retry_after
from sandbox_server.telemetry import KEYS_REFUSED
from sandbox_server.ui.login import Role

OPEN_PATHS = frozenset({"/healthz"})
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9._:/@+-]{1,100})=(?P<key>.{8,})")
"""An entry `name=key`. The minimum length keeps base64 padding at the end of a plain key from counting as a key."""
OfToken = Callable[[str, Sequence[bytes]], Awaitable[Mapping[str, object] | None]]
"""Path and offered texts -> the entries in the request's scope of the session whose token is among them."""


class RequireKey:
    """Answers 401 without a valid key: Bearer, X-API-Key, or the password of HTTP Basic. `app.rights` has its rights.

    An entry `name=key` gives the key a name, which is put into the request's scope. For compatibility with releases
    without names, the whole entry is valid too, as a key without a name. So a key that contains `=` should get a name;
    otherwise the text after its first `=` is a valid key as well, if it is long enough.
    """

    def __init__(
        self, app: ASGIApp, keys: Sequence[str], view_keys: Sequence[str] = (), *, of_token: OfToken | None = None
    ) -> None:
        """`view_keys`: keys for reading only. `of_token`: finds the session whose token a request offers.

        Raises ValueError if a key for reading is also one of `keys`.
        """
        self._app = app
        self._of_token = of_token
        named = [match for key in keys if (match := _NAMED.fullmatch(key))]
        # the whole entry is a key without a name, but its holder knows the named key: it gets the same owner
        owners = {match.string: match["name"] for match in named}
        entries = [(key, _Key("", owners.get(key, ""))) for key in keys]
        entries += [(match["key"], _Key(match["name"], match["name"])) for match in named]
        if set(view_keys) & {key for key, _ in entries}:
            raise ValueError(
                "a key of SANDBOX_VIEW_KEYS is one of SANDBOX_API_KEYS too, so its holder could change everything; give"
                " viewers keys of their own"
            )
        entries += [(key, _Key("", "", views=True)) for key in view_keys]
        self._keys = [(_digest(key.encode()), known) for key, known in entries]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS or has(scope, "opens"):
            await self._app(scope, receive, send)
            return
        offered = _offered(Headers(scope=scope))
        if (key := self.knows(offered)) is not None:
            await self._app({**scope, **key.scope}, receive, send)
            return
        try:
            session = await self._of_token(scope["path"], offered) if self._of_token and has(scope, "token") else None
        except ServiceError as error:
            await send_error(scope, send, error)
            return
        if session is not None:
            await self._app({**scope, **session}, receive, send)
        else:
            if any(offered):
                KEYS_REFUSED.labels("request").inc()
            closed = Unauthorized(
                "This needs an API key, one of SANDBOX_API_KEYS, as Authorization: Bearer, X-API-Key, or https://user:KEY@host."
            )
            headers = [(b"www-authenticate", b'Basic realm="sandbox-server", Bearer')]
            await send_error(scope, send if scope["type"] == "http" else refusing(send), closed, headers)

    def knows(self, offered: Sequence[bytes]) -> "_Key | None":
        """The first valid key among the offered texts; None if there is none."""
        # all comparisons are made, each in constant time, so that the duration reveals nothing about a key
        matches = [
            (key, hmac.compare_digest(_digest(text), digest)) for text in offered if text for digest, key in self._keys
        ]
        return next((key for key, matched in matches if matched), None)


def _offered(headers: Headers) -> list[bytes]:
    """The texts that the request offers as a key; none if the header is malformed."""
    offered = [headers.get("x-api-key", "").encode("latin-1")]
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    credentials = rest.strip().encode("latin-1")
    if scheme.lower() == "bearer":
        offered.append(credentials)
    elif scheme.lower() == "basic":
        try:
            offered.append(base64.b64decode(credentials, validate=True).partition(b":")[2])
        except binascii.Error:
            return []
    return offered


@dataclass(frozen=True, slots=True)
class _Key:
    name: str
    owner: str
    """Owner name of the key's sessions and runs; "" for an operator's key, which has access to all."""
    views: bool = False

    @property
    def scope(self) -> dict[str, object]:
        """The key's entries in the request's scope."""
        return {KEY_NAME: self.name, KEY_OWNER: self.owner, KEY_VIEWS: self.views}


def operator_key(entries: Sequence[str]) -> str:
    """The first entry of SANDBOX_API_KEYS without a name, else the first entry; "" if there are none."""
    return next((key for key in entries if _NAMED.fullmatch(key) is None), entries[0] if entries else "")


async def send_error(
    scope: Scope,
    send: Send,
    error: ServiceError,
    headers: Sequence[tuple[bytes, bytes]] = (),
    *,
    status: int | None = None,
) -> None:
    """Send the error as a complete JSON answer in the format of the path's protocol; `status` overrides its own."""
    trait: Trait | None = scope.get(TRAIT)
    if trait is not None and trait.refuse is not None:
        refused = trait.refuse(error, Headers(scope=scope))
        named = [(name.lower().encode(), value.encode()) for name, value in refused.headers.items()]
        own, content, headers = refused.status, refused.body, [*headers, *named]
    else:
        own = error.http_status
        content = {"code": error.code, "detail": error.detail, "retryable": error.retryable}
        if (status or own) == 503:
            content = refusal(error)
            headers = [
                *headers,
                *((name.lower().encode(), value.encode()) for name, value in retry_after(error).items()),
            ]
    body = json.dumps(content).encode()
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status or own, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})


def role_of(keys: Sequence[str], view_keys: Sequence[str]) -> Callable[[str], Role | None]:
    """A function that maps a key to its role on the pages; None for no access.

    A tenant's key has no access, because the pages show all runs.
    """
    guard = RequireKey(_nowhere, keys, view_keys)

    def role(text: str) -> Role | None:
        key = guard.knows([text.encode("utf-8", "replace")]) if text else None
        if key is None or key.owner:
            return None
        return "viewer" if key.views else "operator"

    return role


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that does nothing."""


def has(scope: Scope, trait: str) -> bool:
    """Whether the path's protocol sets this trait: `opens` or `streams`."""
    return bool(getattr(scope.get(TRAIT), trait, False))


def is_loopback(host: str) -> bool:
    """Whether `host` has only loopback addresses; False for a name that cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None) if host else []
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(entry[4][0]).split("%")[0]).is_loopback for entry in found)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
