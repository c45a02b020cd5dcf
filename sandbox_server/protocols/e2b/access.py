"""Access to envd: its requests carry the box's access token instead of an API key.

A request names its box by the header E2b-Sandbox-Id, else by the token alone (SDK 2.20.3 after connect), else by the
signature in a file's URL, which is made with the token.
"""

import base64
import hashlib
import hmac
from typing import Literal

from starlette.requests import Request

from sandbox_server import clock
from sandbox_server.boxes.boxes import BoxView
from sandbox_server.errors import SandboxPaused, ServiceError, Unauthorized, UnknownSession
from sandbox_server.protocols._numbers import whole
from sandbox_server.protocols._parts import boxes_of

SANDBOX_ID = "e2b-sandbox-id"
TOKEN = "x-access-token"
Operation = Literal["read", "write"]
_LAST_SECOND = 10**15  # expiry of a signature, Unix time; milliseconds fit too


def ports_token(view: BoxView) -> str:
    """The token that opens the box's ports and nothing else; derived from the access token if the ports are public."""
    return view.box.traffic_token or hmac.new(view.box.token.encode(), b"ports", hashlib.sha256).hexdigest()


def is_same(offered: str, own: str) -> bool:
    """Whether a client sent this token."""
    return hmac.compare_digest(offered.encode("utf-8", "surrogatepass"), own.encode())


class BoxGone(ServiceError):
    """The box has ended, is paused or never existed: answered as by E2B's proxy, and not retried by its clients."""

    code = "box_gone"
    http_status = 502

    def __init__(self, sid: str) -> None:
        super().__init__("The sandbox was not found")
        self.sid = sid


async def box_of(request: Request, operation: Operation | None = None) -> BoxView:
    """Return the box that an envd request may use; it runs on this node. A paused box is resumed if requests may do so.

    Does not read the request's body.

    `operation`: the file route's operation, for which a signed URL is accepted instead of a token.

    Raises:
        Unauthorized: token or signature is missing or not the box's (401). BoxGone (502).
        OwnedElsewhere: the box is on another node.
    """
    boxes = boxes_of(request)
    sid, token = request.headers.get(SANDBOX_ID, ""), request.headers.get(TOKEN, "")
    try:
        if sid:
            view = await boxes.get(sid)
            if token:
                _compare(token, view.box.token, "the access token is not this sandbox's")
            else:
                _signed(request, view, operation)
        elif token:
            view = await boxes.of_token(token)
        else:
            view = await _signer(request, operation)
        return await boxes.awake(view)
    except (UnknownSession, SandboxPaused):
        raise BoxGone(sid) from None


async def _signer(request: Request, operation: Operation | None) -> BoxView:
    """The box whose token made the signature. The URL names no box, so every running box is tried."""
    for view in await boxes_of(request).list():
        try:
            _signed(request, view, operation)
        except _OtherSignature:
            continue
        return view
    raise Unauthorized("send the sandbox's access token, X-Access-Token")


class _OtherSignature(Unauthorized):
    """The signature is not this box's."""


def _signed(request: Request, view: BoxView, operation: Operation | None) -> None:
    """Check that the request is signed with the box's token. Raises Unauthorized."""
    query = request.query_params
    signature, ends = query.get("signature", ""), query.get("signature_expiration", "")
    if not signature or operation is None:
        raise Unauthorized("send the sandbox's access token, X-Access-Token")
    words = [query.get("path", ""), operation, query.get("username", ""), view.box.token, *([ends] if ends else [])]
    digest = hashlib.sha256(":".join(words).encode("utf-8", "surrogatepass")).digest()
    made = "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
    if not hmac.compare_digest(made.encode(), signature.encode("utf-8", "surrogatepass")):
        raise _OtherSignature("the signature does not match this file, operation and sandbox")
    if ends and clock.now() >= (whole(ends, _LAST_SECOND) or 0):
        raise Unauthorized("signature is already expired")


def _compare(offered: str, own: str, refusal: str) -> None:
    if not is_same(offered, own):
        raise Unauthorized(refusal)
