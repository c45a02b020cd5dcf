"""Who may see the pages: a browser shows a key once and has a cookie from then on.

The cookie says until when it holds, signed with a secret that all servers with the same keys derive alike; so it is
kept nowhere, and a change of the keys ends it. It is good for /ui alone and SameSite=Strict, and what changes something
asks for a token besides, which another site cannot know.
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
"""A viewer looks and changes nothing."""
_ROLES = ("operator", "viewer")


class Logins:
    """What may be seen by whom."""

    def __init__(self, role_of: Callable[[str], Role | None], keys: Sequence[str]) -> None:
        """`role_of(key)`: what a key opens the pages for; `keys`: all there are, none: nobody is asked for one."""
        self._role_of = role_of
        self.needed = bool(keys)
        # without keys nobody logs in; the token alone is needed, and no other process knows this one's
        seed = "\0".join(sorted(keys)).encode() if keys else secrets.token_bytes(32)
        self._secret = hashlib.sha256(b"sandbox-ui\0" + seed).digest()

    def begin(self, key: str, response: Response, *, secure: bool) -> bool:
        """Put a cookie into the response; False: this is no key."""
        role = self._role_of(key)
        if role is None:
            return False
        told = f"{int(clock.now()) + LASTS_S}.{role}.{secrets.token_hex(8)}"
        value = f"{told}.{self._sign('cookie', told)}"
        response.set_cookie(COOKIE, value, max_age=LASTS_S, path="/ui", secure=secure, httponly=True, samesite="strict")
        return True

    def end(self, response: Response) -> None:
        """Take the cookie back."""
        response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")

    def role(self, request: Request) -> Role | None:
        """By a cookie that holds, else by a key in a header; None: the request may not even look."""
        if not self.needed:
            return "operator"
        return self._holds(request.cookies.get(COOKIE, "")) or self._role_of(_key_of(request))

    def token(self, request: Request) -> str:
        """What a form on a page for this request bears."""
        return self._sign("token", request.cookies.get(COOKIE, ""))

    def may_change(self, request: Request, token: str) -> bool:
        """Whether it comes from a form of ours, sent by an operator."""
        return self.role(request) == "operator" and self.is_own(request, token)

    def is_own(self, request: Request, token: str) -> bool:
        """Whether the request comes from a form of ours."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        return site == "same-origin" and hmac.compare_digest(token.encode(), self.token(request).encode())

    def _holds(self, cookie: str) -> Role | None:
        told, _, sign = cookie.rpartition(".")
        if not hmac.compare_digest(sign.encode(), self._sign("cookie", told).encode()):
            return None
        until, role, _ = told.split(".")
        return cast(Role, role) if int(until) > clock.now() and role in _ROLES else None

    def _sign(self, what: str, text: str) -> str:
        return hmac.new(self._secret, f"{what}\0{text}".encode(), hashlib.sha256).hexdigest()


def _key_of(request: Request) -> str:
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    key = rest.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    return key.encode("latin-1").decode("utf-8", "replace")
