"""The first and the last bytes of a stream are kept, within a bound."""

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.sandbox.collector import Collector


@given(st.lists(st.binary(max_size=50), max_size=40), st.integers(2, 64))
def test_head_tail_and_number(pieces: list[bytes], keep: int) -> None:
    """All lost bytes are counted, and the bound holds."""
    data = b"".join(pieces)
    collector = Collector(keep)
    for piece in pieces:
        collector.add(piece)
        assert len(collector._head) + len(collector._tail) <= 2 * keep + 50
    output = collector.take()
    half = keep // 2
    if len(data) <= 2 * half:
        assert (output.head + output.tail, output.dropped) == (data, 0)
    else:
        assert (output.head, output.tail) == (data[:half], data[-half:])
        assert output.dropped == len(data) - 2 * half


@given(st.lists(st.lists(st.binary(max_size=20), max_size=5), max_size=6))
def test_takes_do_not_overlap(turns: list[list[bytes]]) -> None:
    """A poll does not return the previous poll's output again."""
    collector = Collector(1 << 16)
    for pieces in turns:
        for piece in pieces:
            collector.add(piece)
        output = collector.take()
        assert output.head + output.tail == b"".join(pieces)


def test_memory_is_bounded_for_one_huge_piece() -> None:
    """A frame of many megabytes does not stay in memory."""
    collector = Collector(1000)
    collector.add(bytes(10_000_000))
    output = collector.take()
    assert (len(output.head), len(output.tail), output.dropped) == (500, 500, 9_999_000)
    assert len(output.text()) < 1100
