"""Access to the pages: a browser submits a key once and gets a cookie.

The cookie holds its expiry and is signed with a secret that all servers with the same keys derive identically. So no
server stores it, and a change of the keys invalidates it; only a login that was ended is noted (`state.logouts`). It is
valid for /ui only and SameSite=Strict; a request that changes something also needs a token, which another site cannot
know.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from typing import Literal, cast

from starlette.requests import Request
from starlette.responses import Response

from sandbox_server import clock

COOKIE = "sandbox_ui"
LASTS_S = 12 * 3600

Role = Literal["operator", "viewer"]
"""A viewer may look but change nothing."""


class Logins:
    """Checks what a request may see and change."""

    def __init__(self, role_of: Callable[[str], Role | None], keys: Sequence[str]) -> None:
        """`role_of(key)`: the role that a key gives on the pages. `keys`: all keys; empty: none is required."""
        self._role_of = role_of
        self.needed = bool(keys)
        # without keys nobody logs in; only the token is needed, and only this process can check it
        seed = "\0".join(sorted(keys)).encode() if keys else secrets.token_bytes(32)
        self._secret = hashlib.sha256(b"sandbox-ui\0" + seed).digest()

    def begin(self, key: str, response: Response, *, secure: bool) -> bool:
        """Set the login cookie on `response`; False if `key` is not valid."""
        role = self._role_of(key)
        if role is None:
            return False
        payload = f"{int(clock.now()) + LASTS_S}.{role}.{secrets.token_hex(8)}"
        value = f"{payload}.{self._sign('cookie', payload)}"
        response.set_cookie(COOKIE, value, max_age=LASTS_S, path="/ui", secure=secure, httponly=True, samesite="strict")
        return True

    def end(self, response: Response) -> None:
        """Delete the login cookie."""
        response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")

    def left_s(self, request: Request) -> float:
        """For how many more seconds the request's cookie is valid; 0.0 without a valid one."""
        cookie = request.cookies.get(COOKIE, "")
        return int(cookie.partition(".")[0]) - clock.now() if self.needed and self._holds(cookie) else 0.0

    def role(self, request: Request) -> Role | None:
        """The role from a valid cookie, else from a key in a header; None: not even viewing is allowed."""
        if not self.needed:
            return "operator"
        return self._holds(request.cookies.get(COOKIE, "")) or self._role_of(_key_of(request))

    def token(self, request: Request) -> str:
        """The token to put into the forms of this request's page."""
        return self._sign("token", request.cookies.get(COOKIE, ""))

    def may_change(self, request: Request, token: str) -> bool:
        """Whether an operator sent the request from one of our forms."""
        return self.role(request) == "operator" and self.is_own(request, token)

    def is_own(self, request: Request, token: str) -> bool:
        """Whether the request comes from one of our forms."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        return site == "same-origin" and hmac.compare_digest(token.encode(), self.token(request).encode())

    def _holds(self, cookie: str) -> Role | None:
        payload, _, sign = cookie.rpartition(".")
        if not hmac.compare_digest(sign.encode(), self._sign("cookie", payload).encode()):
            return None
        until, role, _ = payload.split(".")
        return cast(Role, role) if int(until) > clock.now() else None

    def _sign(self, what: str, text: str) -> str:
        return hmac.new(self._secret, f"{what}\0{text}".encode(), hashlib.sha256).hexdigest()


def _key_of(request: Request) -> str:
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    key = rest.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    return key.encode("latin-1").decode("utf-8", "replace")
