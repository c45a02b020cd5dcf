"""Files go in and out byte for byte, with the file system's own errors."""

import asyncio
import hashlib
import os
import time

import pytest

from sandbox_server.errors import SandboxDiskFull
from sandbox_server.sandbox.bash.sandbox import BashSandbox

from .specs import say


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\n", b"no end", bytes(range(256)) * 300, b"\n0123456789abcdef ok\n", b"\0" * 100_000]
)
async def test_round_trip(shared: BashSandbox, data: bytes) -> None:
    """A binary or oddly ended file would come back changed."""
    await shared.write_file("/tmp/f", data)
    assert await shared.read_file("/tmp/f", max_bytes=1 << 20) == data
    seen = await shared.exec(["cat", "/tmp/f"], timeout_s=10)
    assert seen.stdout.head == data


PATHS = [
    "a b",
    "é 漢字 🎉",
    "new\nline",
    "q'\"u`o$te",
    "-n",
    "--help",
    "\\",
    "*?[x]",
    "#!;&|<>()",
    "x" * 255,
    "\x01\x1e\x7f",
    " ",
]


@pytest.mark.parametrize("name", PATHS)
async def test_odd_paths(shared: BashSandbox, name: str) -> None:
    """A path with blanks, quotes or line feeds would lead elsewhere, or be run."""
    path = f"/tmp/odd/{name}/{name}"
    await shared.write_file(path, name.encode())
    assert await shared.read_file(path, max_bytes=1000) == name.encode()
    seen = await shared.exec(["cat", path], timeout_s=10)
    assert seen.stdout.head == name.encode()


async def test_twenty_megabytes(shared: BashSandbox) -> None:
    """A large file would be cut, or take minutes."""
    data = os.urandom(20 << 20)
    began = time.monotonic()
    await shared.write_file("/tmp/big", data)
    assert await shared.read_file("/tmp/big", max_bytes=20 << 20) == data
    assert time.monotonic() - began < 15
    assert (await say(shared, "md5sum < /tmp/big")).split()[0] == hashlib.md5(data).hexdigest()
    with pytest.raises(OverflowError):
        await shared.read_file("/tmp/big", max_bytes=(20 << 20) - 1)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/nope", FileNotFoundError),
        ("/tmp/no/such/folder/f", FileNotFoundError),
        ("/tmp/dangling", FileNotFoundError),
        ("", FileNotFoundError),
        ("/tmp/nul\0byte", FileNotFoundError),
        ("/tmp/new\n\0", FileNotFoundError),
        ("/tmp/\ud800", FileNotFoundError),
        ("/tmp", IsADirectoryError),
        ("/", IsADirectoryError),
        ("/etc/passwd/x", NotADirectoryError),
        ("/etc/passwd/x/y", NotADirectoryError),
        ("/dev/zero", PermissionError),
        ("/tmp/pipe", PermissionError),
        ("/tmp/loop", OSError),
        ("/" + "x" * 300, OSError),
    ],
)
async def test_what_cannot_be_read(shared: BashSandbox, path: str, error: type[Exception]) -> None:
    """The editor would show another reason than a person would see, or hang on a pipe."""
    await say(
        shared, "[[ -p /tmp/pipe ]] || mkfifo /tmp/pipe; ln -sfn /tmp/absent /tmp/dangling; ln -sfn loop /tmp/loop"
    )
    with pytest.raises(error):
        await shared.read_file(path, max_bytes=1000)
    assert await shared.read_file("/etc/hostname", max_bytes=1000)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/tmp", IsADirectoryError),
        ("/", IsADirectoryError),
        ("/tmp/x/", IsADirectoryError),
        ("", OSError),
        ("/etc/passwd/x", NotADirectoryError),
        ("/dev/zero", PermissionError),
        ("/tmp/pipe", PermissionError),
        ("/proc/version", PermissionError),
        ("/sys/x", OSError),
        ("/tmp/nul\0byte", FileNotFoundError),
        ("/tmp/\ud800", FileNotFoundError),
        ("/tmp/" + "x" * 300, OSError),
    ],
)
async def test_what_cannot_be_written(shared: BashSandbox, path: str, error: type[Exception]) -> None:
    """A refused write would leave its bytes on the stream, to be run as commands, or pass for done."""
    await say(shared, "[[ -p /tmp/pipe ]] || mkfifo /tmp/pipe")
    with pytest.raises(error):
        await shared.write_file(path, b"touch /tmp/was-run\n" * 1000)
    await shared.write_file("/tmp/next", b"next")
    assert await shared.read_file("/tmp/next", max_bytes=1000) == b"next"
    assert await say(shared, "[[ -e /tmp/was-run ]]; echo $?") == "1"


async def test_modes_and_links(shared: BashSandbox) -> None:
    """An executable would lose its bit by being edited, a link be replaced by a file."""
    await shared.write_file("/tmp/m", b"1", mode=0o751)
    assert await say(shared, "find /tmp/m -printf %m") == "751"
    await shared.write_file("/tmp/m", b"2")
    assert await say(shared, "find /tmp/m -printf %m; ln -sfn m /tmp/l") == "751"
    await shared.write_file("/tmp/l", b"3")
    assert await say(shared, "cat /tmp/m; readlink /tmp/l; umask 077") == "3m"
    await shared.write_file("/tmp/plain", b"4")
    assert await say(shared, "find /tmp/plain -printf %m; umask 022") == "644"
    await say(shared, "chmod 400 /tmp/m")
    await shared.write_file("/tmp/m", b"root may")
    await shared.write_file("rel/ative", b"5")
    assert await shared.read_file("/rel/ative", max_bytes=9) == b"5"


async def test_file_size_limit(sandbox: BashSandbox) -> None:
    """A file past the limit would pass for written, or block the channel for its timeout."""
    began = time.monotonic()
    with pytest.raises(SandboxDiskFull):
        await sandbox.write_file("/tmp/big", bytes(65 << 20))
    assert time.monotonic() - began < 15
    await sandbox.write_file("/tmp/small", b"fits")
    assert await sandbox.read_file("/tmp/small", max_bytes=9) == b"fits"
    result = await sandbox.shell.run("head -c 100000000 /dev/zero > /tmp/big2; echo $?", timeout_s=20)
    assert b"153" in result.output.head  # 128 + SIGXFSZ, as the file system's own limit


async def test_full_file_system(shared: BashSandbox) -> None:
    """A full disk would be an unknown error rather than the one that says so."""
    with pytest.raises(SandboxDiskFull):
        await shared.write_file("/dev/shm/f", bytes(60 << 20))
        await shared.write_file("/dev/shm/g", bytes(60 << 20))
    await shared.exec(["rm", "-f", "/dev/shm/f", "/dev/shm/g"], timeout_s=5)


async def test_the_channel_is_killed(shared: BashSandbox) -> None:
    """A policy that kills all processes would leave the editor without files."""
    await shared.write_file("/usr/f", b"1")
    await shared.exec(
        ["sh", "-c", "kill -9 $(ps -eo pid,args | grep '[b]ash --noprofile --norc -s' | cut -c1-7)"], timeout_s=5
    )
    assert await shared.read_file("/usr/f", max_bytes=9) == b"1"


async def test_at_once(shared: BashSandbox) -> None:
    """Two operations at once would mix their bytes."""

    async def one(number: int) -> None:
        data = bytes([number]) * (number * 10_000)
        await shared.write_file(f"/tmp/once-{number}", data)
        assert await shared.read_file(f"/tmp/once-{number}", max_bytes=1 << 20) == data

    await asyncio.gather(*(one(number) for number in range(20)))


async def test_cancelled(shared: BashSandbox) -> None:
    """A cancelled read or write would leave its rest on the stream for the next."""
    for delay_s in (0.0, 0.001, 0.005):
        task = asyncio.create_task(shared.write_file("/tmp/c", bytes(16 << 20)))
        await asyncio.sleep(delay_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await shared.write_file("/tmp/d", b"whole")
        assert await shared.read_file("/tmp/d", max_bytes=9) == b"whole"
