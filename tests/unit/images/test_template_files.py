"""Archives that clients upload for a COPY: what is copied where, and what a hostile one may not do."""

import gzip
import io
import re
import tarfile
import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox_server.errors import MalformedRequest
from sandbox_server.images.template_files import Copy, _ends, rewritten

MB = 1 << 20


def member(name: str, body: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(body)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, body


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for info, body in members:
            made.addfile(info, io.BytesIO(body))
    return out.getvalue()


def copied(given: bytes, source: str = ".", target: str = "/app", *, into: bool = True) -> dict[str, tarfile.TarInfo]:
    copy = Copy(source, target, into, uid=7, gid=8)
    with rewritten(given, copy, most_bytes=MB) as body, tarfile.open(fileobj=body) as made:
        return {one.name: one for one in made.getmembers()}


TREE = archive(
    member("src", type=tarfile.DIRTYPE, mode=0o755),
    member("src/a.py", b"a", mode=0o644),
    member("src/deep/b.py", b"b", mode=0o600),
    member("src/link", type=tarfile.SYMTYPE, linkname="deep/b.py"),
    member("notes.txt", b"n"),
)


@pytest.mark.parametrize(
    ("source", "into", "names"),
    [
        (".", True, {"app/src", "app/src/a.py", "app/src/deep/b.py", "app/src/link", "app/notes.txt"}),
        ("src", True, {"app", "app/a.py", "app/deep/b.py", "app/link"}),
        ("notes.txt", True, {"app/notes.txt"}),
        ("notes.txt", False, {"app"}),
        ("src/*.py", True, {"app/a.py"}),
        ("**/*.py", True, {"app/a.py", "app/b.py"}),
    ],
)
def test_what_a_copy_names(source: str, into: bool, names: set[str]) -> None:
    found = copied(TREE, source, into=into)
    assert set(found) == names
    assert {(one.uid, one.gid) for one in found.values()} == {(7, 8)}


@given(
    st.lists(st.sampled_from(["a", "b", "/", "*", "**", "**/", "?", "[ab]", "[^a]", "."]), max_size=6).map("".join),
    st.lists(st.sampled_from(["a", "b", "ab", ".a"]), min_size=1, max_size=4).map("/".join),
)
@example("**/a", "a/a")
@example("*b", "ab/b")
def test_a_glob_names_what_its_regular_expression_does(glob: str, name: str) -> None:
    """A COPY takes other files than at E2B."""
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]", "[ab]": "[ab]", "[^a]": "[^a]"}
    words = re.split(r"(\*\*/?|\*|\?|\[[^\]]*\])", glob)
    expression = "".join(known.get(word) or re.escape(word) for word in words)
    fit = sum(1 << end for end in range(len(name) + 1) if re.fullmatch(expression, name[:end]))
    assert _ends(glob, name) == fit


@pytest.mark.parametrize("glob", ["**/" * 40 + "z", "*a" * 40 + "z", "?*" * 100 + "z"])
def test_a_glob_takes_no_time(glob: str) -> None:
    """One COPY held the whole server for hours: no other thread runs beside a regular expression."""
    began = time.process_time()
    with pytest.raises(MalformedRequest, match="nothing of this name"):
        copied(archive(*(member("aa/" * 100 + str(number), b"x") for number in range(20))), glob)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(("name", "source"), [("a/" * 3000, "."), ("a", "a" * 5000)])
def test_names_that_no_file_can_have(name: str, source: str) -> None:
    """Each folder of a name is looked at: a name of a megabyte takes hours."""
    with pytest.raises(MalformedRequest, match=r"no file can have|that long"):
        copied(archive(member(name, b"x")), source)


@pytest.mark.parametrize(
    "hostile",
    [
        member("../out", b"x"),
        member("/etc/passwd", b"x"),
        member("a/../../out", b"x"),
        member("hard", type=tarfile.LNKTYPE, linkname="/etc/shadow"),
        member("disk", type=tarfile.BLKTYPE, devmajor=8),
        member("pipe", type=tarfile.FIFOTYPE),
        member("large", bytes(MB + 1)),
    ],
    ids=lambda given: given[0].name + given[0].linkname,
)
def test_hostile_members(hostile: tuple[tarfile.TarInfo, bytes]) -> None:
    with pytest.raises(MalformedRequest):
        copied(archive(member("fine", b"x"), hostile))


@pytest.mark.parametrize("below", ["src/link", "src/link/passwd", "other/link/passwd"])
def test_links_are_copied_and_not_followed(below: str) -> None:
    """A file of the archive is written through a link of it, to where the image has its own."""
    link = member("src/link", type=tarfile.SYMTYPE, linkname="/etc")
    assert copied(archive(link), "*")["app/link"].linkname == "/etc"
    with pytest.raises(MalformedRequest, match="below a link"):
        copied(archive(link, member(below, b"x")), "*")


@pytest.mark.parametrize(
    "body",
    [b"", b"no archive", TREE[: len(TREE) // 2], gzip.compress(b"no archive" * 100)],
    ids=["nothing", "no gzip", "half", "no tar"],  # an archive has its time: each worker would name the test otherwise
)
def test_broken_archives(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        copied(body)


def test_a_header_of_gigabytes() -> None:
    """A header that compresses well fills the server's memory."""
    head = tarfile.TarInfo("././@PaxHeader")
    head.type, head.size = tarfile.XHDTYPE, 1 << 30
    bomb = gzip.compress(head.tobuf() + bytes(256 * MB), compresslevel=1)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest, match="SANDBOX_TEMPLATE_FILES_MB"):
            copied(bomb)
        assert tracemalloc.get_traced_memory()[1] < 400 * MB
    finally:
        tracemalloc.stop()
