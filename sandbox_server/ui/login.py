"""Who may see the pages: a browser shows a key once and has a cookie from then on.

The cookie says until when it holds, signed with a secret that all servers with the same keys derive alike; so it is
kept nowhere, and a change of the keys ends it. It is good for /ui alone and SameSite=Strict, and what changes something
asks for a token besides, which another site cannot know.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from sandbox_server import clock

COOKIE = "sandbox_ui"
LASTS_S = 12 * 3600


class Logins:
    """What may be seen by whom."""

    def __init__(self, opens: Callable[[str], bool], keys: Sequence[str]) -> None:
        """`opens(key)`: whether that is a key to the pages; `keys`: all there are, none: nobody is asked for one."""
        self._opens = opens
        self.needed = bool(keys)
        # without keys nobody logs in; the token alone is needed, and no other process knows this one's
        seed = "\0".join(sorted(keys)).encode() if keys else secrets.token_bytes(32)
        self._secret = hashlib.sha256(b"sandbox-ui\0" + seed).digest()

    def begin(self, key: str, response: Response, *, secure: bool) -> bool:
        """Put a cookie into the response; False: this is no key."""
        if not self._opens(key):
            return False
        told = f"{int(clock.now()) + LASTS_S}.{secrets.token_hex(8)}"
        value = f"{told}.{self._sign('cookie', told)}"
        response.set_cookie(COOKIE, value, max_age=LASTS_S, path="/ui", secure=secure, httponly=True, samesite="strict")
        return True

    def end(self, response: Response) -> None:
        """Take the cookie back."""
        response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")

    def may_see(self, request: Request) -> bool:
        """Whether the request brings a cookie that holds, or a key in a header."""
        return not self.needed or self._holds(request.cookies.get(COOKIE, "")) or self._opens(_key_of(request))

    def token(self, request: Request) -> str:
        """What a form on a page for this request bears."""
        return self._sign("token", request.cookies.get(COOKIE, ""))

    def may_change(self, request: Request, token: str) -> bool:
        """Whether the request comes from a form of ours."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        return site == "same-origin" and hmac.compare_digest(token.encode(), self.token(request).encode())

    def _holds(self, cookie: str) -> bool:
        until, _, rest = cookie.partition(".")
        nonce, _, sign = rest.partition(".")
        if not hmac.compare_digest(sign.encode(), self._sign("cookie", f"{until}.{nonce}").encode()):
            return False
        return int(until) > clock.now()

    def _sign(self, what: str, text: str) -> str:
        return hmac.new(self._secret, f"{what}\0{text}".encode(), hashlib.sha256).hexdigest()


def _key_of(request: Request) -> str:
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    key = rest.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    return key.encode("latin-1").decode("utf-8", "replace")
