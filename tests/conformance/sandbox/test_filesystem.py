"""A sandbox's files as its users see them: their owners, their paths, and streaming."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator

import pytest

from sandbox_server.errors import SandboxDiskFull, UnknownUser
from sandbox_server.sandbox.bash.sandbox import BashSandbox
from sandbox_server.sandbox.docker.runtime import DockerRuntime
from sandbox_server.sandbox.filesystem import FileKind

from .backends import unlike_gvisor
from .specs import say, spec
from .test_files import PATHS

MIB = 1 << 20
NAMESPACE = "user.e2b"


async def given(*chunks: bytes) -> AsyncIterator[bytes]:
    """As an upload would come."""
    for chunk in chunks:
        yield chunk


async def got(sandbox: BashSandbox, path: str, user: str = "root") -> bytes:
    """The whole file."""
    return b"".join([piece async for piece in sandbox.get(path, user=user)])


@pytest.fixture(scope="module")
async def peopled(runtime: DockerRuntime) -> AsyncIterator[BashSandbox]:
    """One with a user `ada`."""
    sandbox = await runtime.create(spec())
    await say(sandbox, "useradd -m ada")
    yield sandbox
    await runtime.remove(sandbox.container_id)


@pytest.mark.parametrize(
    "chunks", [[], [b""], [b"x"], [b"\n", b"", b"\n"], [bytes(range(256))] * 300, [b"\0" * (3 * MIB + 7)]]
)
async def test_round_trip(peopled: BashSandbox, chunks: list[bytes]) -> None:
    """A file would come back changed where its pieces meet."""
    info = await peopled.put("/tmp/f", given(*chunks))
    assert info.size == len(b"".join(chunks))
    assert await got(peopled, "/tmp/f") == b"".join(chunks)


@pytest.mark.parametrize("name", PATHS)
async def test_odd_paths(peopled: BashSandbox, name: str) -> None:
    """A path with blanks, quotes or line feeds would lead elsewhere, or be run."""
    path = f"/tmp/odd/{name}/{name}"
    assert (await peopled.put(path, given(name.encode()))).path == path
    assert await got(peopled, path) == name.encode()
    assert [info.path for info in await peopled.listdir(f"/tmp/odd/{name}")] == [path]
    await peopled.remove(f"/tmp/odd/{name}")


async def test_whose_it_is(peopled: BashSandbox) -> None:
    """What is written for a user would be root's, and the user's commands could not change it."""
    info = await peopled.put("new/er/file", given(b"x"), user="ada")
    assert (info.path, info.owner, info.group, info.permissions) == (
        "/home/ada/new/er/file",
        "ada",
        "ada",
        "-rw-r--r--",
    )
    assert (await say(peopled, "find /home/ada/new -type d -printf '%u %m '")).split() == ["ada", "755"] * 2
    await say(peopled, "cd /home/ada/new/er; chown root file; chmod 4711 file; ln file other; cd")
    again = await peopled.put("~/new/er/file", given(b"yy"), user="ada")
    assert (again.owner, again.mode & 0o777, again.size) == ("ada", 0o711, 2)
    assert await got(peopled, "new/./er/../er/other", "ada") == b"yy"  # written in place


async def test_folders(peopled: BashSandbox) -> None:
    """Listings would lack entries, or follow links around in a circle."""
    made = await peopled.mkdir("/tmp/t/a/b", user="ada")
    assert (made.kind, made.owner, made.mode) == (FileKind.DIR, "ada", 0o755)
    await peopled.put("/tmp/t/f", given(b"12345"))
    await say(peopled, "cd /tmp/t; ln -s f link; ln -s . loop; ln -s nowhere dangling; mkfifo pipe; cd")
    found = {info.path.removeprefix("/tmp/t/"): info for info in await peopled.listdir("/tmp/t", depth=5)}
    assert list(found) == ["a", "a/b", "dangling", "f", "link", "loop", "pipe"]
    kinds = {name: info.kind.value for name, info in found.items()}
    assert kinds == {
        "a": "dir", "a/b": "dir", "dangling": "symlink", "f": "file", "link": "file", "loop": "dir", "pipe": "other",
    }  # fmt: skip
    assert found["link"].target == "/tmp/t/f"
    assert found["f"].size == 5
    assert [info.name for info in await peopled.listdir("/tmp/t/loop")] == list(found)[:1] + list(found)[2:]
    assert (await peopled.stat("/tmp/t/link")).target == "/tmp/t/f"
    moved = await peopled.move("/tmp/t/f", "/tmp/t/new/g", user="ada")
    assert (moved.path, moved.owner) == ("/tmp/t/new/g", "root")
    assert (await peopled.move("/tmp/t/new/g", "/tmp/t/new/g")).size == moved.size
    await peopled.remove("/tmp/t")
    await peopled.remove("/tmp/t")
    with pytest.raises(FileNotFoundError):
        await peopled.stat("/tmp/t")


async def test_as_deep_as_a_path_may_be(peopled: BashSandbox) -> None:
    """Missing folders were sorted in the square of their number, for a minute, and did not fit into one command."""
    path = "/tmp/deep" + "/yy" * 1330
    await peopled.put(f"{path}/file", given(b"down here"), user="ada")
    assert await got(peopled, f"{path}/file", "ada") == b"down here"
    assert (await peopled.stat(path, user="ada")).owner == "ada"


async def test_what_cannot_be_done(peopled: BashSandbox) -> None:
    """A client could not tell a missing file from a fault of ours."""
    await peopled.put("/tmp/file", given(b"x"))
    for call, kind in (
        (peopled.stat("/none"), FileNotFoundError),
        (got(peopled, "/none"), FileNotFoundError),
        (got(peopled, "/tmp"), IsADirectoryError),
        (peopled.put("/tmp", given(b"x")), IsADirectoryError),
        (peopled.put("/tmp/file/x", given(b"x")), NotADirectoryError),
        (peopled.put("/tmp/" + "x" * 300, given(b"x")), ValueError),
        (peopled.listdir("/none"), FileNotFoundError),
        (peopled.listdir("/tmp/file"), NotADirectoryError),
        (peopled.mkdir("/tmp"), FileExistsError),
        (peopled.mkdir("/tmp/file"), NotADirectoryError),
        (peopled.move("/none", "/tmp/x"), FileNotFoundError),
        (peopled.move("/tmp/file", "/tmp"), FileExistsError),
        (peopled.stat("x", user="nobody-here"), UnknownUser),
        (peopled.stat("~ada/x"), ValueError),
        (peopled.stat("a\0b"), ValueError),
        (peopled.put("/dev/full", given(b"x" * 100)), SandboxDiskFull),
    ):
        with pytest.raises(kind):
            await call
    with pytest.raises(OSError, match="Invalid argument"):
        await peopled.move("/opt", "/opt/x")
    assert await got(peopled, "/tmp/file") == b"x"


@unlike_gvisor("lets files of /proc be removed")
@pytest.mark.parametrize("path", ["/proc/1/status", "/proc/sys/fs/quota"])
async def test_what_of_the_kernel_cannot_be_removed(peopled: BashSandbox, path: str) -> None:
    """A refusal would pass for done."""
    with pytest.raises(PermissionError):
        await peopled.remove(path)


@unlike_gvisor("keeps no extended attributes")
async def test_attributes(peopled: BashSandbox) -> None:
    """What a client noted about a file would be lost, or outlive the file."""
    marked = await peopled.put("/opt/m", given(b"x"), attributes={"author": "me", "k": "v w"}, namespace=NAMESPACE)
    assert marked.attributes == {"author": "me", "k": "v w"}
    assert (await peopled.stat("/opt/m", namespace=NAMESPACE)).attributes == marked.attributes
    (listed,) = [info for info in await peopled.listdir("/opt", namespace=NAMESPACE) if info.name == "m"]
    assert listed.attributes == marked.attributes
    assert (await peopled.move("/opt/m", "/opt/n", namespace=NAMESPACE)).attributes == marked.attributes
    assert await got(peopled, "/opt/n") == b"x"
    assert (await peopled.put("/opt/n", given(b"y"), namespace=NAMESPACE)).attributes == {}


async def test_streams_are_not_held(peopled: BashSandbox) -> None:
    """An upload of hundreds of megabytes would be in the server's memory, once for each client."""
    piece = os.urandom(MIB)

    async def many() -> AsyncIterator[bytes]:
        for _ in range(60):
            yield piece

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (await peopled.put("/tmp/large", many())).size == 60 * MIB
    came = 0
    async for part in peopled.get("/tmp/large"):
        came += len(part)
    assert came == 60 * MIB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30 << 10  # KiB
    await peopled.remove("/tmp/large")


async def test_broken_off(peopled: BashSandbox) -> None:
    """A client that leaves in the middle would leave the channel out of step for the next one."""
    await peopled.put("/tmp/half", given(b"x" * MIB))
    reading = peopled.get("/tmp/half")
    await anext(reading)
    await reading.aclose()

    async def leaves() -> AsyncIterator[bytes]:
        yield b"part"
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        await peopled.put("/tmp/half", leaves())
    writing = asyncio.create_task(peopled.put("/tmp/other", _never()))
    await asyncio.sleep(0.3)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert (await peopled.stat("/tmp/half")).path == "/tmp/half"


async def _never() -> AsyncIterator[bytes]:
    yield b"x"
    await asyncio.sleep(60)


async def test_at_the_same_time(peopled: BashSandbox) -> None:
    """Operations would mix their answers up."""
    await asyncio.gather(*[peopled.put(f"/tmp/par/{n}", given(b"%d" % n)) for n in range(30)])
    found = await asyncio.gather(*[got(peopled, f"/tmp/par/{n}") for n in range(30)])
    assert found == [b"%d" % n for n in range(30)]


async def test_a_killed_channel(peopled: BashSandbox) -> None:
    """Processes of the policy may kill ours; the next operation is done all the same."""
    await peopled.put("/tmp/k", given(b"1"))
    await say(peopled, "pkill -KILL -f -- '--norc -p -s'")
    await peopled.put("/tmp/k", given(b"2"))
    await say(peopled, "pkill -KILL -f -- '--norc -p -s'")
    assert await got(peopled, "/tmp/k") == b"2"
