"""Which host names name ports of boxes, and which headers are forwarded."""

import pytest

from sandbox_server.protocols._by_host import passed_on
from sandbox_server.protocols.e2b.ports import Names, Target


@pytest.mark.parametrize(
    ("domain", "host", "target"),
    [
        ("b.example", "8000-12.b.example", Target("12", 8000)),
        ("b.example", "8000-12.B.Example.:443", Target("12", 8000)),
        ("b.example:8443", "49983-12.b.example:8443", Target("12", 49983)),
        ("b.example", "65536-12.b.example", Target("12", 0)),
        ("b.example", "100000080-12.b.example", Target("12", 0)),
        ("b.example", "8000-12.bxexample", None),
        ("b.example", "8000-12.b.example.org", None),
        ("b.example", "x.8000-12.b.example", None),
        ("b.example", "b.example", None),
        ("b.example", "", None),
    ],
)
def test_names(domain: str, host: str, target: Target | None) -> None:
    """No foreign name leads into a box, and no port is misread."""
    assert Names(domain).read(host) == target


def test_no_header_of_one_hop_goes_on() -> None:
    """A client cannot have us drop the headers that say where the request goes and how long it is."""
    headers = [(b"host", b"h"), (b"connection", b"Host, X-Own , content-length"), (b"x-own", b"1"), (b"te", b"gzip")]
    assert passed_on([*headers, (b"content-length", b"1"), (b"x", b"2")]) == [
        (b"host", b"h"),
        (b"content-length", b"1"),
        (b"x", b"2"),
    ]
