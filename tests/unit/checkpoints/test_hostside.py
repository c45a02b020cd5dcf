"""Files of containers, read and written from their host: never further than the container's own tree."""

import asyncio
import io
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from sandbox_server.checkpoints.archive import Kind, Member, members
from sandbox_server.checkpoints.hostside import on_thread
from sandbox_server.checkpoints.packer import Packer
from sandbox_server.checkpoints.unpacker import FolderContents, HostRestoreFailed, unpack
from sandbox_server.errors import SandboxDiskFull
from sandbox_server.sandbox.tree import Folders, HostAccessFailed, Tree


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Folders]:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    made = Folders(os.open(tmp_path / "root", os.O_RDONLY))
    yield made
    made.close()


def put(folders: Folders, *members: Member, folder: bytes = b"", kept: bytes = b"", shm: Folders | None = None) -> None:
    """Unpack below a folder that is no container's."""
    unpack(cast(Tree, SimpleNamespace(files=folders, shm=shm)), FolderContents.of(folder, kept), members)


def test_no_link_leads_out(folders: Folders, tmp_path: Path) -> None:
    """A policy's link makes the server read or list a file of the host."""
    root = tmp_path / "root"
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "up").symlink_to("../outside/secret")
    os.mkfifo(root / "fifo")
    for path in (b"/out/secret", b"/up", b"/../outside/secret", b"/./up", b"/fifo"):
        with pytest.raises(OSError):
            folders.read(path)
    with pytest.raises(OSError):
        next(folders.entries(b"/out"))


def member(path: bytes, kind: Kind = Kind.FILE, target: bytes = b"") -> Member:
    """A member with four bytes, if it is a file."""
    content = [(0, b"evil")] if kind is Kind.FILE else []
    return Member(path, kind, 0o600, os.getuid(), os.getgid(), size=4, target=target, content=content)


@pytest.mark.parametrize("way", [b"/a/secret", b"/a/../outside/secret", b"/../outside/secret"])
def test_nothing_is_written_outside(folders: Folders, tmp_path: Path, way: bytes) -> None:
    """A forged archive writes a file of the host."""
    outside = str(tmp_path / "outside").encode()
    with pytest.raises(HostRestoreFailed):
        put(folders, member(b"/a", Kind.SYMLINK, outside), member(way))
    assert (tmp_path / "outside/secret").read_text() == "secret"
    assert os.listdir(tmp_path / "outside") == ["secret"]


def test_nothing_outside_gets_a_name_inside(folders: Folders, tmp_path: Path) -> None:
    """A forged archive links a file of the host into a container."""
    outside = str(tmp_path / "outside").encode()
    for target in (outside + b"/secret", b"/a/secret", b"/../outside/secret"):
        with pytest.raises(HostRestoreFailed):
            put(folders, member(b"/a", Kind.SYMLINK, outside), member(b"/b", Kind.LINK, target))
        assert not (tmp_path / "root/b").exists()


def test_a_full_disk_is_told_as_one(folders: Folders, tmp_path: Path, missing: Callable[[str], None]) -> None:
    """A session that was to wake while the engine's disk was full was given up as one that cannot be restored."""
    if os.geteuid():
        missing("root, to mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        root = Folders(os.open(small, os.O_RDONLY))
        large = replace(member(b"/large"), size=1 << 20, content=[(0, bytes(1 << 20))])
        with pytest.raises(SandboxDiskFull):
            put(root, large)
        root.close()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_what_is_removed_lies_inside(folders: Folders, tmp_path: Path) -> None:
    """A link is followed where a deleted folder is deleted again, or what was kept goes."""
    root = tmp_path / "root"
    (root / "d/e").mkdir(parents=True)
    (root / "d/e/out").symlink_to(tmp_path / "outside")
    (root / "kept").write_text("")
    put(folders, folder=b"/\0", kept=b"/kept\0")
    assert os.listdir(root) == ["kept"]
    assert (tmp_path / "outside/secret").read_text() == "secret"


def test_another_kind_takes_the_place(folders: Folders, tmp_path: Path) -> None:
    """A file, link, FIFO or folder stays where the checkpoint has something else, or a folder keeps a late time."""
    root = tmp_path / "root"
    (root / "file").symlink_to("x")
    (root / "link").write_text("x")
    (root / "folder").write_text("x")
    made = Member(b"/folder", Kind.FOLDER, 0o1750, os.getuid(), os.getgid(), mtime_ns=1_000_000_001)
    put(
        folders,
        made,
        member(b"/file"),
        member(b"/link", Kind.SYMLINK, b"file"),
        member(b"/folder/hard", Kind.LINK, b"/file"),
        member(b"/folder/fifo", Kind.FIFO),
    )
    assert (root / "file").read_text() == "evil" and (root / "file").stat().st_nlink == 2
    assert os.readlink(root / "link") == "file" and (root / "folder/fifo").is_fifo()
    seen = (root / "folder").stat()
    assert (seen.st_mode & 0o7777, seen.st_mtime_ns) == (0o1750, 1_000_000_001)


def test_what_is_kept_stays(folders: Folders, tmp_path: Path) -> None:
    """A folder that the checkpoint has is removed with all that is in it, or a deleted file stays."""
    (tmp_path / "root/d").mkdir()
    (tmp_path / "root/d/file").write_text("")
    (tmp_path / "root/gone").write_text("")
    put(folders, folder=b"/\0", kept=b"/d/\0")
    assert os.listdir(tmp_path / "root") == ["d"] and os.listdir(tmp_path / "root/d") == ["file"]


def test_a_file_is_what_it_was(folders: Folders, tmp_path: Path) -> None:
    """A program loses its set-user-ID bit, a file the hole at its end, a folder keeps attributes of a later time."""
    own = (os.getuid(), os.getgid())
    (tmp_path / "root/d").mkdir()
    try:
        os.setxattr(tmp_path / "root/d", "user.later", b"x")
    except OSError:
        pytest.skip("this disk has no attributes")
    content = [(0, b"ab"), (10, b"c")]
    put(
        folders,
        Member(b"/d", Kind.FOLDER, 0o755, *own, xattrs={b"user.kept": b"1"}),
        Member(b"/d/f", Kind.FILE, 0o6755, *own, mtime_ns=5, size=1000, xattrs={b"user.a": b"2"}, content=content),
    )
    file = tmp_path / "root/d/f"
    assert file.read_bytes() == b"ab" + bytes(8) + b"c" + bytes(989)
    assert (file.stat().st_mode & 0o7777, file.stat().st_mtime_ns) == (0o6755, 5)
    assert (os.listxattr(file), os.listxattr(tmp_path / "root/d")) == (["user.a"], ["user.kept"])


def test_memory_of_a_container_is_left_to_it(folders: Folders) -> None:
    """Files in /dev/shm are counted as the server's memory."""
    for shm in (None, folders):
        with pytest.raises(HostRestoreFailed, match="files in /dev/shm"):
            put(folders, member(b"/dev/shm/a"), shm=shm)


def test_another_process_is_not_taken_for_a_container() -> None:
    """The host's own tree is read or written because a process id was used again."""
    with pytest.raises(HostAccessFailed):
        Tree(os.getpid(), "0" * 64)
    with pytest.raises(HostAccessFailed):
        Tree(2**22 + 1, "0" * 64)


def test_folders_too_deep_are_left_alone(folders: Folders, tmp_path: Path) -> None:
    """Thousands of nested folders cost descriptors or time."""
    deep = b"/" + b"/".join([b"a"] * 50)
    (tmp_path / "root" / os.fsdecode(deep[1:])).mkdir(parents=True)
    with pytest.raises(OSError):
        folders.open(deep)
    assert folders.open(deep[:60])


def test_holes_are_not_read_as_bytes(folders: Folders, tmp_path: Path) -> None:
    """A file with a hole of any size between many small parts is that large in each copy."""
    with (tmp_path / "root/islands").open("wb") as file:
        for number in range(1100):
            file.seek(number << 16)
            file.write(b"x")
        file.truncate(1 << 40)
    with pytest.raises(HostAccessFailed, match="parts between holes"):
        packer(folders)
    os.truncate(tmp_path / "root/islands", 900 << 16)
    assert sum(map(len, packer(folders).pieces())) < 8 << 20


def test_names_of_one_file_stay_one(folders: Folders, tmp_path: Path) -> None:
    """In a copy, a change by one name is not seen by the other; or two files that look alike have become one."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    (root / "d").mkdir()
    copy.mkdir()
    for file in ("a", "alike", "half"):
        (root / file).write_text("same")
    (root / "s").symlink_to("a")
    os.mkfifo(root / "p")
    for name in ("a", "s", "p"):
        os.link(root / name, root / "d" / name, follow_symlinks=False)
    os.link(root / "half", tmp_path / "outside/half")  # the other name is no changed path
    archive = io.BytesIO(b"".join(packer(folders).pieces()))
    made = Folders(os.open(copy, os.O_RDONLY))
    put(made, *(replace(one, content=list(one.content)) for one in members(archive.read)))
    made.close()
    assert names(copy) == names(root) == [["a", "d/a"], ["alike"], ["d/p", "p"], ["d/s", "s"], ["half"]]
    assert (copy / "d/a").read_text() == (copy / "half").read_text() == "same" and os.readlink(copy / "d/s") == "a"


def test_other_names_outlive_the_first(folders: Folders, tmp_path: Path) -> None:
    """A program removes the first name of a file while it is packed: the other one is a link to nothing in the copy."""
    root = tmp_path / "root"
    for name in ("a", "b", "c"):
        (root / name).hardlink_to(root / "a") if name != "a" else (root / name).write_text("same")
    pieces = packer(folders).pieces()
    was = folders.read

    def read(path: bytes) -> int:
        (root / "a").unlink(missing_ok=True)
        return was(path)

    folders.read = read  # type: ignore[method-assign]  # the moment between the look at a name and its opening
    archive = io.BytesIO(b"".join(pieces))
    packed = [replace(one, content=list(one.content)) for one in members(archive.read)]
    assert [(one.path, one.kind, one.target) for one in packed[1:]] == [
        (b"/b", Kind.FILE, b""),
        (b"/c", Kind.LINK, b"/b"),
    ]


def packer(folders: Folders) -> Packer:
    """A packer of these folders as a container's changed ones."""
    shown = SimpleNamespace(upper=folders, files=folders, shm=None, mounts=frozenset(), volumes=list, programs=list)
    return Packer(cast(Tree, shown))


def names(root: Path) -> list[list[str]]:
    """The paths below a folder that are no folders, those of one inode together."""
    found: dict[int, list[str]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            found.setdefault(path.lstat().st_ino, []).append(str(path.relative_to(root)))
    return sorted(found.values())


async def test_a_caller_that_gives_up_stops_the_thread() -> None:
    """A large restore goes on after its bound, or what it uses is closed beneath it."""
    stop, ended = threading.Event(), threading.Event()

    def work() -> None:
        assert stop.wait(20)
        time.sleep(0.05)
        ended.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await on_thread(work, stopped=stop.set)
    assert ended.is_set()
