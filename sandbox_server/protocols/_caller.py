"""Which sessions and receipts the API key of a request may see. Not a plugin, hence the underscore."""

import re
from typing import cast

from starlette.requests import HTTPConnection

from sandbox_server.errors import UnknownReceipt, UnknownSession
from sandbox_server.protocols._parts import sessions_of
from sandbox_server.protocols._wire import KEY_OWNER

NO_SESSION = "0"
"""Stands for every spelling that names no session; this sid is never assigned."""


def canonical_sid(sid: int | str | None) -> str:
    """The sid in its only spelling: no sign, no leading zero, below 2^63; else NO_SESSION."""
    text = str(sid) if isinstance(sid, int) and abs(sid) < 2**63 else sid
    is_canonical = isinstance(text, str) and re.fullmatch("[1-9][0-9]{0,18}", text) and int(text) < 2**63
    return cast(str, text) if is_canonical else NO_SESSION


def owner_of_caller(request: HTTPConnection) -> str | None:
    """The only owner whose sessions the request may see and use; None: all owners (an operator's or viewer's key)."""
    return request.scope.get(KEY_OWNER) or None


async def owns(request: HTTPConnection, sid: str) -> bool:
    """Whether the request may see and use the session; if not, answer as if the session did not exist."""
    owner = owner_of_caller(request)
    if owner is None:
        return True
    # called before the route has validated the path: do not look up what cannot be a sid
    known = re.fullmatch("[0-9]{1,19}", sid) is not None
    return known and await sessions_of(request).owner(sid) == owner


async def own_sid(request: HTTPConnection, named: int | str | None) -> str:
    """The sid in canonical spelling; NO_SESSION if the session belongs to another API key."""
    sid = canonical_sid(named)
    return sid if await owns(request, sid) else NO_SESSION


async def check_session(request: HTTPConnection, sid: str) -> None:
    """Return if the caller may use the session. Raises UnknownSession."""
    if not await owns(request, sid):
        raise UnknownSession.of(sid)


async def check_receipt(request: HTTPConnection, receipt_id: str) -> None:
    """Return if the caller may see the receipt. Raises UnknownReceipt."""
    owner = owner_of_caller(request)
    if owner is None:
        return
    known = re.fullmatch("[A-Za-z0-9_.:-]{1,128}", receipt_id) is not None
    if not known or await request.app.state.receipts.receipt_owner(receipt_id) != owner:
        raise UnknownReceipt(f"no receipt {receipt_id[:60]!r}; the `receipt` of a reward is its id")
