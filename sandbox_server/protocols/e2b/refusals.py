"""How errors read to clients of E2B, and so what they do next: `{"code": status, "message": text}`.

Its Python SDK and those who use it decide by status, class and words what is sent again:

    500                     sent again, by slime too; so what passes (no room, a part that is away) is a 500 to the SDK,
                            which gives up on 503 for good once its own three tries are over
    "does not exist"        in the message: never sent again; what no try will change says that
    502 with these fields   the sandbox is gone for good
"""

from starlette.datastructures import Headers

from sandbox_server.errors import CapacityError, ServiceError
from sandbox_server.protocols._traits import Refusal
from sandbox_server.protocols._wire import retry_after
from sandbox_server.protocols.e2b.access import BoxGone

_SDK = "e2b-python-sdk"
_OTHERWISE = {422: 400, 507: 500}
"""Statuses that E2B's API does not have."""


def refuse(error: ServiceError, headers: Headers) -> Refusal:
    """The answer to a request with these headers."""
    if isinstance(error, BoxGone):
        return Refusal(502, {"sandboxId": error.sid, "message": error.detail, "code": 502})
    status, message = _OTHERWISE.get(error.http_status, error.http_status), error.detail
    if isinstance(error, CapacityError):
        message = f"no capacity, retry: {message}"
    if status == 503 and _SDK in headers.get("user-agent", ""):
        status = 500
    return Refusal(status, {"code": status, "message": message}, retry_after(error) if status in (429, 503) else {})
