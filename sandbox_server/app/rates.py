"""Middleware that bounds the requests and the sent bytes of each named key per minute. Plain ASGI, to see all requests.

Both are counted on this node alone. A request that another node forwards carries its client's key, so it counts on each
of the two nodes.
"""

import math
import time
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_server.app.access import send_error
from sandbox_server.errors import OverQuota
from sandbox_server.protocols._wire import KEY_OWNER

_MINUTE_S = 60.0


@dataclass(slots=True)
class Allowance:
    """The remaining allowance of one key: at most a minute's worth, refilled evenly; below 0 after a large body."""

    per_min: float
    left: float
    at: float

    def wait_s(self, now: float) -> int:
        """Whole seconds until one (request, byte) is left; 0: one is left now."""
        self.left = min(self.per_min, self.left + (now - self.at) * self.per_min / _MINUTE_S)
        self.at = now
        return max(0, math.ceil((1 - self.left) * _MINUTE_S / self.per_min))


class Rates:
    """Answers 429 to a named key that sent too many requests, or too many bytes, within the last minute.

    A body is never cut off for this: it counts as it arrives, and an excess delays the key's next request.
    Keys without a name are the operator's and have no bound.
    """

    def __init__(self, app: ASGIApp, *, requests_per_min: int, sent_mb_per_min: float) -> None:
        """0: no bound."""
        self._app = app
        self._bounds = {
            "SANDBOX_RUN_REQUESTS_PER_MIN": float(requests_per_min),
            "SANDBOX_RUN_SENT_MB_PER_MIN": sent_mb_per_min * 2**20,
        }
        self._used: dict[tuple[str, str], Allowance] = {}  # as many as there are named keys, at most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        owner = scope.get(KEY_OWNER)
        if scope["type"] != "http" or not owner or not any(self._bounds.values()):
            await self._app(scope, receive, send)
            return
        now = time.monotonic()
        requests, sent = (self._of(owner, setting, now) for setting in self._bounds)
        for setting, allowance in zip(self._bounds, (requests, sent), strict=True):
            if allowance is not None and (wait_s := allowance.wait_s(now)):
                error = OverQuota(
                    f"the key {owner!r} has used what {setting} lets it use on this node; ask again in {wait_s} s",
                    retry_after_s=wait_s,
                )
                await send_error(scope, send, error, [(b"retry-after", str(wait_s).encode())])
                return
        if requests is not None:
            requests.left -= 1

        async def counted() -> Message:
            message = await receive()
            if sent is not None:
                sent.left -= len(message.get("body", b""))
            return message

        await self._app(scope, counted, send)

    def _of(self, owner: str, setting: str, now: float) -> Allowance | None:
        per_min = self._bounds[setting]
        if not per_min:
            return None
        return self._used.setdefault((owner, setting), Allowance(per_min, per_min, now))
