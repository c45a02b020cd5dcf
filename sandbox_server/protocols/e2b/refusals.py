"""Errors in E2B's format `{"code": status, "message": text}`, chosen so that clients retry the right ones.

E2B's Python SDK and its users decide by status, class and words whether to retry:

    500                     Retried, by slime too. So the SDK gets 500 for transient errors (no room, a part that is
                            down); after a 503 it tries three times and gives up for good.
    "does not exist"        In the message: never retried. Permanent errors contain these words.
    502 with these fields   The sandbox is gone for good.
"""

from starlette.datastructures import Headers

from sandbox_server.errors import CapacityError, ServiceError
from sandbox_server.protocols._traits import Refusal
from sandbox_server.protocols._wire import retry_after
from sandbox_server.protocols.e2b.access import BoxGone

_SDK = "e2b-python-sdk"
_OTHERWISE = {422: 400, 507: 500}
"""Status that E2B's API does not have -> the status sent instead."""


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
