"""The type of an error answer, whoever sent it."""

import pytest

from sandbox_client.errors import NoCapacity, RequestRejected, ServiceFault, UnknownInstance, answered_error


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (404, {"code": "unknown_instance", "detail": "no"}, UnknownInstance, "unknown_instance"),
        (422, {"detail": [{"loc": ["n"]}]}, RequestRejected, "http_422"),  # a framework's
        (413, None, RequestRejected, "http_413"),  # a proxy's page
        (502, {"code": 7003, "errors": []}, ServiceFault, "http_502"),  # a proxy's JSON
        (503, {"code": "no_capacity", "position": 3, "estimate_s": 2}, NoCapacity, "no_capacity"),
    ],
)
def test_the_type_goes_by_the_code_else_by_the_status(
    status: int, body: object, kind: type[Exception], code: str
) -> None:
    """A trainer that takes a proxy's 502 for its own mistake ends its run; one that repeats a 422 never ends."""
    error = answered_error(status, body)
    assert (type(error), error.code, error.status) == (kind, code, status)
    assert error.position == (3 if kind is NoCapacity else None)
