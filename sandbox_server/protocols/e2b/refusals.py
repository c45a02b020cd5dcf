"""Errors in E2B's format `{"code": status, "message": text}`, chosen so that clients retry the right ones.

E2B's Python SDK and its users decide by status, class and words whether to retry:

    500                     is retried, by slime too; so transient errors (no room, a part that is down) are a 500 to
                            the SDK, which gives up on 503 for good after its own three tries
    "does not exist"        in the message: never retried; permanent errors contain it
    502 with these fields   the sandbox is gone for good
"""

from starlette.datastructures import Headers

from sandbox_server.errors import CapacityError, ServiceError
from sandbox_server.protocols._traits import Refusal
from sandbox_server.protocols._wire import retry_after
from sandbox_server.protocols.e2b.access import BoxGone

_SDK = "e2b-python-sdk"
_OTHERWISE = {422: 400, 507: 500}
"""Statuses that E2B's API does not have -> replacement."""


def refuse(error: ServiceError, headers: Headers) -> Refusal:
    """The error response to a request with these headers."""
    if isinstance(error, BoxGone):
        return Refusal(502, {"sandboxId": error.sid, "message": error.detail, "code": 502})
    status, message = _OTHERWISE.get(error.http_status, error.http_status), error.detail
    if isinstance(error, CapacityError):
        message = f"no capacity, retry: {message}"
    if status == 503 and _SDK in headers.get("user-agent", ""):
        status = 500
    return Refusal(status, {"code": status, "message": message}, retry_after(error) if status in (429, 503) else {})
