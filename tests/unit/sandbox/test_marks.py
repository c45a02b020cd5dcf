"""Marks are found for any chunking, only if complete, and in linear time."""

import itertools
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_server.sandbox.bash.marks import Begin, End, Mark, Notice, Prompt, Scanner

TOKEN = "f" * 32
NONCE = "0123456789abcdef"
MARKS = [
    f"\x1eB{NONCE}\x1e",
    f"\x1eI{NONCE} 0 0 t \x1f/tmp\x1f/usr/bin/python\x1e",
    f"\x1eI{NONCE} 255 4294967295 c \x1f/a\r\nb\x1f\x1e",
    f"\x1eI{NONCE} 7 65534  \x1f{'/x' * 2000}\x1f\x1e",
    f"\x1eP{NONCE} root\x1e",
    f"\x1eL{TOKEN} end 137\x1e",
]
NEARLY = [
    "\x1e",
    "\x1f",
    "\x1eB",
    f"\x1eB{NONCE}",
    f"B{NONCE}\x1e",
    f"\x1eL{'0' * 32} up\x1e",
    f"\x1eI{NONCE} 1234 0 t \x1f\x1f\x1e",
]
STREAMS = st.lists(
    st.one_of(st.sampled_from(MARKS + NEARLY).map(str.encode), st.binary(max_size=40), st.just(b"\x1e" * 50)),
    max_size=30,
).map(b"".join)


def scan(data: bytes, cuts: list[int]) -> tuple[list[tuple[bytes, Mark]], bytes]:
    """The marks with all output before each, and the output after the last, including held-back bytes."""
    scanner = Scanner(TOKEN)
    borders = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    marks: list[tuple[bytes, Mark]] = []
    output = b""
    for start, end in itertools.pairwise(borders):
        for piece, mark in scanner.feed(data[start:end]):
            if mark is None:
                output += piece
            else:
                marks.append((output, mark))
                output = b""
    return marks, output + scanner._held


@settings(deadline=None)
@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=60))
def test_chunks_change_nothing(data: bytes, cuts: list[int]) -> None:
    """A mark that arrives in two pieces is neither shown as output nor lost."""
    assert scan(data, cuts) == scan(data, [])


@settings(deadline=None, max_examples=30)
@given(STREAMS)
def test_byte_by_byte(data: bytes) -> None:
    """The same for the smallest chunks."""
    assert scan(data, list(range(len(data)))) == scan(data, [])


@given(STREAMS)
def test_nothing_is_lost(data: bytes) -> None:
    """Output before, between and after marks is neither lost, repeated nor reordered."""
    scanner = Scanner(TOKEN)
    assert b"".join(piece for piece, _ in scanner.feed(data)) + scanner._held == data


def test_fields() -> None:
    """Status, user and path are read from the right fields."""
    marks = [mark for _, mark in scan("".join(MARKS).encode(), [])[0]]
    assert marks == [
        Begin(NONCE),
        End(NONCE, 0, 0, True, False, "/tmp", "/usr/bin/python"),
        End(NONCE, 255, 4294967295, False, True, "/a\nb", ""),
        End(NONCE, 7, 65534, False, False, "/x" * 2000, ""),
        Prompt(NONCE, "root"),
        Notice(("end", "137")),
    ]


def test_no_mark_without_the_token() -> None:
    """A policy cannot forge the loop's notice that its shell ended."""
    forged = f"\x1eL{'0' * 32} end 0\x1e\x1eL end 0\x1e".encode()
    assert scan(forged, []) == ([], forged)


def test_floods_take_linear_time() -> None:
    """A program that prints our bytes for ever does not block the event loop."""
    for flood in (b"\x1e", b"\x1eI" + NONCE.encode() + b" 0 0 t \x1f", b"\x1eB0", b"\x1e\x1f", b"x"):
        took = []
        for size in (500_000, 4_000_000):
            data = flood * (size // len(flood))
            scanner = Scanner(TOKEN)
            began = time.process_time()
            for start in range(0, len(data), 4096):
                for _ in scanner.feed(data[start : start + 4096]):
                    pass
            took.append(time.process_time() - began)
        assert took[1] < 8 * 3 * took[0] + 0.2, (flood, took)
        assert took[1] < 6, (flood, took)


def test_what_is_held_back_is_bounded() -> None:
    """A lone 0x1e at the start of a long output does not hold it back."""
    scanner = Scanner(TOKEN)
    shown = sum(len(piece) for piece, _ in scanner.feed(b"\x1eI" + NONCE.encode() + b" 0 0 t \x1f" + b"x" * 100_000))
    assert shown == 100_000 + 26
    assert scanner._held == b""
