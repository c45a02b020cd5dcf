"""Texts of a request for a box are bounded: servers keep them, and every list of boxes reads them."""

import pytest

from sandbox_server.boxes.planning import BoxRequest, _bound
from sandbox_server.errors import MalformedRequest
from sandbox_server.records import BoxKind

LONG = "x" * (200 << 10)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"a": LONG}, "env": {"b": LONG}},
        {"template": LONG, "metadata": {LONG: ""}},
        {"env": {str(number): "x" * 100 for number in range(3000)}},
    ],
)
def test_too_much_text(fields: dict[str, object]) -> None:
    """Each pause of a box with 25 MB of metadata left 50 MB in the server's memory."""
    with pytest.raises(MalformedRequest, match="256 KB"):
        _bound(BoxRequest(BoxKind.E2B, **fields))  # type: ignore[arg-type]


def test_what_programs_send() -> None:
    _bound(BoxRequest(BoxKind.E2B, metadata={"a": LONG}, env={"PATH": "/bin"}))
