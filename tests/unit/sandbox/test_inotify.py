"""What the kernel tells of a folder."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_server.sandbox.inotify import EventMask, Inotify


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """An open folder."""
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_short_lives_are_told(tmp_path: Path, folder: int) -> None:
    """A file that is gone when somebody looks was never there; one of another folder is."""
    kernel = Inotify()
    watch = kernel.add(folder)
    assert kernel.add(folder) == watch and list(kernel.events()) == []
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "one").write_text("1")
    (other / "unseen").write_text("2")
    (tmp_path / "one").rename(tmp_path / "two")
    (tmp_path / "two").chmod(0o600)
    (tmp_path / "two").unlink()
    told = [(event.mask, os.fsdecode(event.name)) for event in kernel.events() if event.watch == watch]
    assert told == [
        (EventMask.CREATED, "other"),
        (EventMask.CREATED, "one"),
        (EventMask.WRITTEN, "one"),
        (EventMask.MOVED_FROM, "one"),
        (EventMask.MOVED_TO, "two"),
        (EventMask.CHANGED, "two"),
        (EventMask.DELETED, "two"),
    ]
    kernel.remove(watch)
    kernel.remove(watch)
    assert [event.mask for event in kernel.events()] == [EventMask.UNWATCHED]


def test_a_flood_is_read_in_parts(tmp_path: Path, folder: int) -> None:
    """A container that makes events without end holds up the server."""
    kernel = Inotify()
    kernel.add(folder)
    for number in range(6000):
        (tmp_path / f"a-name-of-some-length-{number}").touch()
    first, second = list(kernel.events()), list(kernel.events())
    assert len(first) < 4500 and second
    names = [os.fsdecode(event.name) for event in first + second if event.mask is EventMask.CREATED]
    assert [int(re.findall(r"\d+", name)[0]) for name in names] == list(range(len(names)))
